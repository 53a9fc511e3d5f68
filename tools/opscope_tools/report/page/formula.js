"use strict";
/* Formulas of a report as functions of their variables. The grammar is that of opscope_schemas.formula: whole numbers, variables in
   braces, + - * / // % **, min, max, ceil, floor, parentheses; conditions compare formulas and join them by and, or, not. */
const Formula = (() => {
  const TOKEN = /\s*(?:(\d+)|\{(\w+)\}|(\*\*|\/\/|[-+*/%(),]|<=|>=|==|!=|<|>)|(min|max|ceil|floor|and|or|not)\b)/y;
  const floored = (a, b) => {
    let quotient = Math.floor(a / b);
    const rest = a - quotient * b;  // the quotient was rounded before it was floored
    if (b > 0 ? rest < 0 : rest > 0) quotient -= 1;
    else if (b > 0 ? rest >= b : rest <= b) quotient += 1;
    return quotient;
  };
  const COMPARE = {"<": (a, b) => a < b, ">": (a, b) => a > b, "<=": (a, b) => a <= b, ">=": (a, b) => a >= b, "==": (a, b) => a === b, "!=": (a, b) => a !== b};
  const CALLS = {min: Math.min, max: Math.max, ceil: Math.ceil, floor: Math.floor};

  const tokens = text => {
    const found = [];
    TOKEN.lastIndex = 0;
    while (text.slice(TOKEN.lastIndex).trim()) {
      const match = TOKEN.exec(text);
      if (!match) throw new Error(`not a formula: ${text}`);
      found.push(match[1] !== undefined ? {number: Number(match[1])} : match[2] !== undefined ? {name: match[2]} : {sign: match[3] || match[4]});
    }
    return found;
  };

  const read = text => {
    const list = tokens(text);
    let at = 0;
    const sign = (...signs) => at < list.length && signs.includes(list[at].sign) ? list[at++].sign : undefined;
    const need = wanted => { if (!sign(wanted)) throw new Error(`${wanted} is missing in ${text}`); };
    const either = () => { let left = both(); while (sign("or")) { const a = left, b = both(); left = v => a(v) || b(v); } return left; };
    const both = () => { let left = negated(); while (sign("and")) { const a = left, b = negated(); left = v => a(v) && b(v); } return left; };
    const negated = () => { if (sign("not")) { const inner = negated(); return v => !inner(v); } return compared(); };
    const compared = () => {
      const left = sum(), how = sign(...Object.keys(COMPARE));
      if (!how) return left;
      const right = sum(), compare = COMPARE[how];
      return v => compare(left(v), right(v));
    };
    const sum = () => {
      let left = product(), how;
      while ((how = sign("+", "-"))) { const a = left, b = product(); left = how === "+" ? v => a(v) + b(v) : v => a(v) - b(v); }
      return left;
    };
    const product = () => {
      let left = signed(), how;
      while ((how = sign("*", "/", "//", "%"))) {
        const a = left, b = signed();
        if (how === "*") left = v => a(v) * b(v);
        else if (how === "/") left = v => a(v) / b(v);
        else if (how === "//") left = v => floored(a(v), b(v));
        else left = v => { const x = a(v), y = b(v); return x - floored(x, y) * y; };
      }
      return left;
    };
    const signed = () => {
      if (sign("-")) { const inner = signed(); return v => -inner(v); }
      return sign("+") ? signed() : power();
    };
    const power = () => {
      const base = atom();
      if (!sign("**")) return base;
      const exponent = signed();
      return v => base(v) ** exponent(v);
    };
    const atom = () => {
      const token = list[at++];
      if (token === undefined) throw new Error(`the formula ends early: ${text}`);
      if (token.number !== undefined) { const number = token.number; return () => number; }
      if (token.name !== undefined) {
        const name = token.name;
        return v => { const value = v[name]; if (value === undefined) throw new Error(`${name} has no value`); return value; };
      }
      if (token.sign === "(") { const inner = either(); need(")"); return inner; }
      const call = CALLS[token.sign];
      if (!call) throw new Error(`${token.sign} stands in the wrong place of ${text}`);
      need("(");
      const parts = [sum()];
      while (sign(",")) parts.push(sum());
      need(")");
      return parts.length === 1 ? v => call(parts[0](v)) : v => call(...parts.map(part => part(v)));
    };
    const whole = either();
    if (at < list.length) throw new Error(`something is left over in ${text}`);
    return whole;
  };

  const known = new Map();
  /** The formula or condition as a function of an object of values; each text is read once. */
  const of = text => { if (!known.has(text)) known.set(text, read(text)); return known.get(text); };
  return {of};
})();
if (typeof module !== "undefined") module.exports = Formula;
