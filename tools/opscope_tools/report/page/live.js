"use strict";
/* The live part of a report's page: the formulas of the analysis, evaluated here at whatever sizes are set. */
(() => {
  const holder = document.getElementById("live-data");
  if (!holder) return;
  const data = JSON.parse(holder.textContent);
  const $ = id => document.getElementById(id);
  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) if (name === "class") element.className = value; else element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const drawn = (tag, attributes = {}, text = "") => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text) element.textContent = text;
    return element;
  };
  const digits = value => Math.abs(value) < 999.5 ? String(Number(value.toPrecision(3))) : Math.round(value).toLocaleString("en");
  const scaled = (value, unit, scales) => {
    for (const [factor, prefix] of scales) if (Math.abs(value) >= 0.9995 * factor) return `${digits(value / factor)} ${prefix}${unit}`;
    return `${digits(value)} ${unit}`;
  };
  const PREFIXES = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  const flops = value => scaled(value, "FLOP", PREFIXES);
  const bytes = value => scaled(value, "B", PREFIXES);
  const seconds = value => value === 0 ? "0 s" : scaled(value, "s", [[1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"], [1e-12, "p"]]);
  const MEASURES = {flops: ["FLOPs", flops], bytes: ["Bytes", bytes], time: ["Time", seconds]};

  // ---- state: what is set, and what can be

  const phases = Object.fromEntries(data.phases.map(phase => [phase.phase, phase]));
  const initial = () => ({phase: data.phases[0].phase, values: {}, device: data.device, measure: "time", zoom: "", search: "", sort: "time", down: true, pinned: null, plan: data.plans.length ? data.plans[0].id : ""});
  let state = initial();
  const document_ = () => phases[state.phase].documents[0];
  const value = name => state.values[name] ?? document_().point[name] ?? document_().variables.find(v => v.name === name)?.default;
  const CALL = ["batch_size", "seq_len", "cache_len", "encoder_seq_len"], WIDTHS = ["w_bytes", "a_bytes", "kv_bytes"];

  /** All values of a document's formulas: what is set, then what follows from that. */
  const bound = (doc, changed = {}) => {
    const values = {...doc.point};
    for (const name of Object.keys(values)) values[name] = changed[name] ?? state.values[name] ?? values[name];
    for (const variable of doc.variables) {
      if (variable.kind === "fixed") values[variable.name] = changed[variable.name] ?? state.values[variable.name] ?? variable.default;
      const own = changed[variable.name] ?? state.values[variable.name];
      if (variable.definition && (own === undefined || variable.kind === "derived")) {
        try { values[variable.name] = Formula.of(variable.definition)(values); } catch { /* stays at its default */ }
      }
    }
    return values;
  };
  const broken = (doc, values) => [
    ...doc.conditions.filter(condition => { try { return !Formula.of(condition)(values); } catch { return true; } }),
    ...doc.variables.filter(v => v.kind === "fixed" && v.default !== null && values[v.name] !== v.default).map(v => `{${v.name}} == ${v.default}`),
    ...doc.variables.filter(v => v.kind === "fitted" && v.name in doc.point && values[v.name] !== doc.point[v.name]).map(v => `{${v.name}} == ${doc.point[v.name]}`),
  ];
  const names = text => [...text.matchAll(/\{(\w+)\}/g)].map(found => found[1]);
  /** The first trace whose conditions hold; one that was compared with a trace at the report's own point counts there. */
  const chosen = (changed = {}) => {
    const found = phases[state.phase].documents.map(doc => {
      const values = bound(doc, changed), left = broken(doc, values);
      const same = left.every(condition => names(condition).every(name => values[name] === doc.point[name]) && doc.waived.includes(condition));
      return {doc, values, left, holds: !left.length, compared: left.length > 0 && same};
    });
    return found.find(one => one.holds) || found.find(one => one.compared) || found[0];
  };

  /** The peak of products as wide as the wider of weights and activations, and what it is called; 32 bits without TF32, as PyTorch has it. */
  const rate = device => {
    const width = Math.max(value("w_bytes") ?? 2, value("a_bytes") ?? 2), names = width <= 1 ? ["fp8", "int8", "bf16", "fp16", "fp32"] : width <= 2 ? ["bf16", "fp16", "fp32"] : ["fp32", "tf32", "bf16"];
    const name = names.find(one => device.peaks[one]) || Object.keys(device.peaks)[0];
    return {peak: device.peaks[name], name};
  };
  /** Where a size lies between sizes in ascending order: the places on both sides and how far between them; null outside. */
  const between = (sizes, size) => {
    const next = sizes.findIndex(known => known >= size);
    if (next < 0 || size < sizes[0]) return null;
    return sizes[next] === size ? [next, next, 0] : [next - 1, next, Math.log(size / sizes[next - 1]) / Math.log(sizes[next] / sizes[next - 1])];
  };
  /** The pass as engines run it under the chosen plan, in logarithms between the modelled points; null beyond them, on another device, at other sizes. */
  const engine = one => {
    const plan = data.plans.find(p => p.id === state.plan), grid = plan && plan.phases[state.phase], decode = state.phase === "decode", length = decode ? "cache_len" : "seq_len";
    const doc = phases[state.phase].documents[0], moved = Object.entries(state.values).some(([name, set]) => name !== "batch_size" && name !== length && set !== (doc.point[name] ?? set));
    if (!grid || state.device !== data.device || moved) return null;
    const row = between(grid.contexts, one.values[length]), column = between(grid.batches, one.values.batch_size);
    if (!row || !column) return null;
    const at = table => {
      const [a, b, share] = column, along = line => Math.log(table[line][a]) * (1 - share) + Math.log(table[line][b]) * share;
      return Math.exp(along(row[0]) * (1 - row[2]) + along(row[1]) * row[2]);
    };
    const time = at(grid.seconds), tokens = one.values.batch_size * (decode ? 1 : one.values[length]);
    return {plan, time, bytes: at(grid.bytes), rate: tokens / time, about: row[2] || column[2] ? "≈ " : ""};
  };
  /** The kernels as engines run them, with calibrated times: known at the report's own point and on its device alone. */
  const served = () => {
    const phase = phases[state.phase], doc = phase.documents[0];
    const moved = Object.entries(state.values).some(([name, set]) => set !== (doc.point[name] ?? set));
    return moved || state.device !== data.device || (data.plans.length && state.plan !== data.plans[0].id) ? [] : phase.served;
  };
  const device = () => data.devices.find(one => one.id === state.device) || data.devices[0];

  /** Costs of each operator at what is set: a row of numbers beside each row of the document. */
  const computed = (one, on = device()) => {
    const {peak} = rate(on), {doc, values} = one, text = place => Formula.of(data.formulas[place])(values);
    const rows = doc.rows.map(row => {
      const moved = text(row.read) + text(row.write), work = text(row.flops);
      return {row, flops: work, matmul: text(row.matmul), bytes: moved, time: Math.max(work / peak, moved / on.bandwidth), limit: work / peak > moved / on.bandwidth ? "compute" : "memory"};
    });
    const sum = name => rows.reduce((total, each) => total + each[name], 0);
    const figure = formula => { try { return formula === "" ? null : Formula.of(formula)(values); } catch { return null; } };
    const peaks = doc.peaks.map(figure).filter(size => size !== null);
    return {
      rows, flops: sum("flops"), matmul: sum("matmul"), bytes: sum("bytes"), time: sum("time"), weights: figure(doc.weights), cache: figure(doc.cache), inputs: figure(doc.inputs),
      token: figure(doc.per_token), activations: peaks.length ? Math.max(...peaks) : null, tokens: (values.batch_size ?? 1) * (values.seq_len ?? 1),
    };
  };

  // ---- drawing

  const COLOURS = ["#9ecbff", "#ffd59e", "#b7e4b0", "#f3b6c8", "#d3c1f5", "#a8e3dd", "#f2e29b", "#d5d9de"];
  const colour = name => COLOURS[[...name].reduce((sum, letter) => (sum * 31 + letter.charCodeAt(0)) >>> 0, 7) % COLOURS.length];

  const tree = figures => {
    const root = {name: data.model, path: "", children: new Map(), total: 0, flops: 0, bytes: 0, time: 0};
    for (const each of figures.rows) {
      let node = root;
      for (const measure of Object.keys(MEASURES)) node[measure] += each[measure];
      const parts = each.row.path ? each.row.path.replaceAll(".*", " *").split(".") : [];
      for (const part of [...parts, `${each.row.operator} :${each.row.line}`]) {
        if (!node.children.has(part)) node.children.set(part, {name: part.replace(" *", ".*"), path: node.path ? `${node.path}/${part}` : part, children: new Map(), flops: 0, bytes: 0, time: 0, row: null});
        node = node.children.get(part);
        for (const measure of Object.keys(MEASURES)) node[measure] += each[measure];
      }
      node.row = each.row;
    }
    return root;
  };
  const found = (node, path) => path === "" ? node : path.split("/").reduce((at, part) => at && at.children.get(part), node);

  const icicle = (root, focused) => {
    const svg = $("live-icicle"), width = 1000, height = 26, measure = state.measure, start = found(root, state.zoom) || root;
    svg.replaceChildren();
    let deepest = 0;
    const place = (node, left, share, depth) => {
      const room = share * width;
      if (room < 1) return;
      deepest = Math.max(deepest, depth);
      const group = drawn("g", {class: "node", "data-path": node.path, tabindex: room > 12 ? "0" : "-1", role: "button", "aria-label": `${node.name}: ${MEASURES[measure][1](node[measure])}, ${(100 * node[measure] / (root[measure] || 1)).toFixed(1)} % of the pass`});
      group.append(drawn("title", {}, group.getAttribute("aria-label")), drawn("rect", {x: left, y: depth * height, width: room, height: height - 1, fill: colour(node.row ? node.row.operator : node.name)}));
      const letters = Math.floor((room - 6) / 6.8);
      if (letters > 2) {  // a frame of its own cuts what is too long: the whole name stays what the bar is called
        const frame = drawn("svg", {x: left, y: depth * height, width: room - 2, height});
        frame.append(drawn("text", {x: 4, y: 17}, node.name));
        group.append(frame);
      }
      svg.append(group);
      let at = left;
      for (const child of node.children.values()) {
        const part = node[measure] ? share * child[measure] / node[measure] : 0;
        place(child, at, part, depth + 1);
        at += part * width;
      }
    };
    place(start, 0, 1, 0);
    svg.setAttribute("viewBox", `0 0 ${width} ${(deepest + 1) * height}`);
    if (focused !== undefined) [...svg.querySelectorAll(".node")].find(node => node.dataset.path === focused)?.focus();
  };

  const branches = (node, whole) => {
    const line = make("span", {}, node.name, make("span", {class: "num"}, `${MEASURES[state.measure][1](node[state.measure])} · ${(100 * node[state.measure] / (whole || 1)).toFixed(1)} %`));
    if (!node.children.size) return make("li", {}, line);
    const list = make("ul"), fold = make("details", {"data-path": node.path}, make("summary", {}, line), list);
    fold.open = opened.has(node.path);
    const fill = () => { if (!list.childElementCount) list.append(...[...node.children.values()].map(child => branches(child, whole))); };
    if (fold.open) fill();
    fold.addEventListener("toggle", () => { if (fold.open) { opened.add(node.path); fill(); } else opened.delete(node.path); });
    return make("li", {}, fold);
  };
  const opened = new Set([""]);

  /** Labels pushed apart, down from the top and back up from the bottom, so that none covers another and all are in the picture. */
  const apart = (labels, least, top, bottom) => {
    labels.sort((a, b) => a.y - b.y);
    labels.forEach((label, at) => { label.y = Math.max(label.y, at ? labels[at - 1].y + least : top); });
    for (let at = labels.length - 1; at >= 0; at -= 1) labels[at].y = Math.min(labels[at].y, at + 1 < labels.length ? labels[at + 1].y - least : bottom);
  };

  const axes = (svg, box, x, y, xs, ys, xname, yname) => {
    for (const at of xs) svg.append(drawn("line", {class: "grid", x1: x(at), x2: x(at), y1: box.top, y2: box.bottom}), drawn("text", {x: x(at), y: box.bottom + 16, "text-anchor": "middle"}, scaled(at, "", PREFIXES).trim()));
    for (const at of ys) svg.append(drawn("line", {class: "grid", x1: box.left, x2: box.right, y1: y(at), y2: y(at)}), drawn("text", {x: box.left - 6, y: y(at) + 4, "text-anchor": "end"}, scaled(at, "", PREFIXES).trim()));
    svg.append(drawn("line", {class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom}), drawn("line", {class: "axis", x1: box.left, x2: box.left, y1: box.top, y2: box.bottom}));
    svg.append(drawn("text", {x: (box.left + box.right) / 2, y: box.bottom + 34, "text-anchor": "middle"}, xname), drawn("text", {x: box.left - 46, y: box.top - 8}, yname));
  };
  const powers = (low, high, base = 10) => { const list = []; for (let e = Math.ceil(Math.log(low) / Math.log(base) - 1e-9); base ** e <= high * 1.0001; e += 1) list.push(base ** e); if (list.length < 2) return [low, high]; const step = Math.ceil(list.length / 7); return list.filter((_, at) => at % step === 0); };

  const roofline = figures => {
    const svg = $("live-roofline"), box = {left: 60, right: 520, top: 24, bottom: 300}, on = device(), {peak} = rate(on);
    svg.replaceChildren();
    svg.setAttribute("viewBox", "0 0 720 344");
    const groups = new Map();
    for (const each of figures.rows) if (each.flops && each.bytes) {
      const group = groups.get(each.row.group) || {name: each.row.group, flops: 0, bytes: 0, time: 0};
      for (const measure of Object.keys(MEASURES)) group[measure] += each[measure];
      groups.set(each.row.group, group);
    }
    const points = [...groups.values()].sort((a, b) => b.time - a.time).slice(0, 12);
    if (!points.length) return;
    const low = Math.min(0.05, ...points.map(p => p.flops / p.bytes)), high = Math.max(4 * peak / on.bandwidth, ...points.map(p => 2 * p.flops / p.bytes));
    const bottom = Math.min(low * on.bandwidth, ...points.map(p => p.flops / p.time)) / 2;
    const x = at => box.left + (box.right - box.left) * Math.log(at / low) / Math.log(high / low), y = at => box.bottom - (box.bottom - box.top) * Math.log(at / bottom) / Math.log(2 * peak / bottom);
    axes(svg, box, x, y, powers(low, high), powers(bottom, 2 * peak), "FLOPs per byte", "FLOP/s");
    svg.append(drawn("polyline", {class: "roof", points: `${x(low)},${y(low * on.bandwidth)} ${x(peak / on.bandwidth)},${y(peak)} ${x(high)},${y(peak)}`}));
    const largest = Math.max(...points.map(p => p.time)), labels = [];
    for (const kernel of served()) if (kernel.flops && kernel.bytes) {
      const shape = drawn("circle", {class: "served", cx: x(Math.max(low, kernel.flops / kernel.bytes)), cy: y(Math.max(bottom, kernel.flops / kernel.seconds)), r: 4});
      shape.append(drawn("title", {}, `${kernel.name}, as engines run it, calibrated: ${seconds(kernel.seconds)}`));
      svg.append(shape);
    }
    for (const point of points) {
      const cx = x(point.flops / point.bytes), cy = y(point.flops / point.time), circle = drawn("circle", {class: "dot", cx, cy, r: 3 + 9 * Math.sqrt(point.time / largest)});
      circle.append(drawn("title", {}, `${point.name}: ${digits(point.flops / point.bytes)} FLOPs per byte, ${seconds(point.time)}`));
      svg.append(circle);
      labels.push({point, cx, cy, y: cy});
    }
    apart(labels, 15, box.top, box.bottom + 30);
    for (const label of labels) {
      const at = label.y;
      svg.append(drawn("line", {class: "leader", x1: label.cx, y1: label.cy, x2: box.right + 14, y2: at - 4}), drawn("text", {x: box.right + 18, y: at}, label.point.name.length > 26 ? label.point.name.slice(0, 25) + "…" : label.point.name));
    }
  };

  const curve = (id, name, label, unit, series, second) => {
    const svg = $(id), box = {left: 66, right: 500, top: 24, bottom: 230}, now = value(name);
    svg.replaceChildren();
    if (now === undefined) { svg.setAttribute("viewBox", "0 0 520 40"); svg.append(drawn("text", {x: 10, y: 24}, `This pass has no ${name}.`)); return; }
    svg.setAttribute("viewBox", "0 0 520 276");
    const most = name === "batch_size" ? Math.max(1024, 4 * now) : Math.max(data.limit || 131072, 2 * now), points = [];
    for (let step = 0; step <= 28; step += 1) {
      const size = Math.max(1, Math.round(most ** (step / 28)));
      if (points.length && points.at(-1).size === size) continue;
      const one = chosen({[name]: size});
      const sums = one.holds || one.compared ? computed(one) : null, point = {size, first: sums && series(sums), second: second ? second(sums, one) : null};
      if (point.first !== null || point.second !== null) points.push(point);
    }
    const values = points.flatMap(p => [p.first, p.second]).filter(v => v !== null && v > 0);
    if (points.length < 2 || !values.length) { svg.append(drawn("text", {x: 10, y: 24}, "No trace holds along this axis.")); return; }
    const low = Math.min(...values), high = Math.max(...values) * 1.1;
    const x = at => box.left + (box.right - box.left) * Math.log(at) / Math.log(most), y = at => box.bottom - (box.bottom - box.top) * (low === high ? .5 : Math.log(at / low) / Math.log(high / low));
    axes(svg, box, x, y, powers(1, most), powers(low, high), label, unit);
    for (const [which, css] of [["first", "line"], ["second", "line second"]]) {
      const path = points.filter(p => p[which] > 0).map(p => `${x(p.size)},${y(p[which])}`).join(" ");
      if (path) svg.append(drawn("polyline", {class: css, points: path}));
    }
    const here = points.reduce((best, p) => Math.abs(p.size - now) < Math.abs(best.size - now) ? p : best);
    svg.append(drawn("circle", {class: "dot", cx: x(here.size), cy: y(Math.max(here.first ?? here.second, low)), r: 5}));
  };

  const COLUMNS = [["path", "Module"], ["operator", "Operator"], ["line", "Line"], ["flops", "FLOPs", flops], ["bytes", "Bytes", bytes], ["intensity", "FLOPs per byte", digits], ["time", "Time", seconds], ["limit", "Limited by"]];
  const rowsShown = figures => {
    const wanted = state.search.toLowerCase(), key = state.sort;
    const list = figures.rows.map(each => ({...each, path: each.row.path || data.model, operator: each.row.operator, line: `${each.row.file.split("/").pop()}:${each.row.line}`, intensity: each.bytes ? each.flops / each.bytes : 0}))
      .filter(each => !wanted || `${each.path} ${each.operator} :${each.row.line} ${each.line} ${each.row.code}`.toLowerCase().includes(wanted));
    return list.sort((a, b) => (typeof a[key] === "number" ? a[key] - b[key] : String(a[key]).localeCompare(String(b[key]))) * (state.down ? -1 : 1));
  };
  const table = figures => {
    const head = $("live-table").tHead.rows[0], body = $("live-table").tBodies[0];
    if (!head.childElementCount) for (const [name, title] of COLUMNS) {
      const button = make("button", {type: "button"}, title);
      button.addEventListener("click", () => { state.down = state.sort === name ? !state.down : true; state.sort = name; update(); });
      head.append(make("th", {scope: "col", "data-name": name}, button));
    }
    for (const cell of head.cells) if (cell.dataset.name === state.sort) cell.setAttribute("aria-sort", state.down ? "descending" : "ascending"); else cell.removeAttribute("aria-sort");
    body.replaceChildren(...rowsShown(figures).map(each => make("tr", {}, ...COLUMNS.map(([name, , form]) => form ? make("td", {class: "number"}, form(each[name])) : make("td", {}, String(each[name]))))));
  };

  const cards = (figures, one) => {
    const on = device(), known = one.holds || one.compared, held = [figures.weights, figures.cache, figures.inputs, figures.activations].filter(v => v !== null).reduce((a, b) => a + b, 0);
    const told = {
      "FLOPs": [figures.flops, flops], "in matrix products": [figures.matmul, flops], "Bytes moved": [figures.bytes, bytes], "FLOPs per byte": [figures.bytes ? figures.flops / figures.bytes : 0, digits],
      [`Roofline time on ${on.name}, ${digits(rate(on).peak / 1e12)} TFLOP/s ${rate(on).name}`]: [figures.time, seconds], "Tokens per second of the eager pass, at most": [figures.time ? figures.tokens / figures.time : 0, digits],
      "Weights": [figures.weights, bytes], "Cache after the pass": [figures.cache, bytes], "Inputs": [figures.inputs, bytes], "Activations at their peak": [figures.activations, bytes],
      [`In memory, of ${bytes(on.usable)}`]: [held, size => `${bytes(size)} ${size <= on.usable ? "fits" : "does not fit"}`],
    };
    const run = engine(one), modelled = {};
    if (run) {
      const about = form => size => run.about + form(size);
      modelled[`As engines run it on ${run.plan.name}`] = [run.time, about(seconds)];
      if (run.bytes <= on.usable) modelled["Tokens per second as engines run it"] = [run.rate, about(digits)];
      modelled["Weights and cache on each device"] = [run.bytes, size => `${bytes(size)} ${size <= on.usable ? "fits" : "does not fit"}`];
    }
    Object.assign(told, modelled);
    const before = state.pinned && state.pinned.figures;
    $("live-cards").replaceChildren(...Object.entries(told).filter(([, [figure]]) => figure !== null).map(([name, [figure, form]], place) => {
      const entry = make("dd", {}, known || name in modelled ? form(figure) : "not known");
      if (before && before[place] !== undefined && before[place] !== null) entry.append(make("small", {}, `pinned: ${form(before[place])}${before[place] ? `, now ×${digits(figure / before[place])}` : ""}`));
      return make("div", {}, make("dt", {}, name), entry);
    }));
    return Object.values(told).map(([figure]) => figure).filter(figure => figure !== null);
  };

  const command = values => {
    const set = Object.fromEntries(Object.entries(values).filter(([name]) => CALL.includes(name) || (WIDTHS.includes(name) && state.values[name] !== undefined)));
    const config = {};
    for (const variable of document_().variables) if (variable.config_key && state.values[variable.name] !== undefined) config[variable.config_key] = state.values[variable.name];
    const more = Object.keys(config).length ? ` --config '${JSON.stringify(config)}'` : "";
    return `opscope count-flops ${data.target} --phase ${state.phase} --logits last --values '${JSON.stringify(set)}'${more}`;
  };
  const told = one => {
    const box = $("live-state");
    box.classList.toggle("broken", !one.holds && !one.compared);
    if (one.holds) box.textContent = "The formulas hold here: every condition of the trace is met.";
    else if (one.compared) box.textContent = `These formulas ask for ${[...new Set(one.left)].join(", ")}. At the report's own point, which does not meet that, a trace of its own gave the same figures.`;
    else box.replaceChildren(`No formula of this page holds here: none for ${[...new Set(one.left)].slice(0, 4).join(", ")}. Counts and the eager pass's times are not known; trace anew with `, make("code", {}, command(one.values)));
    $("live-pin").disabled = !state.pinned && !one.holds && !one.compared;
    document.querySelector(".live").classList.toggle("unknown", !one.holds && !one.compared);
  };

  let last = null, figures_ = [];
  const update = focused => {
    const one = chosen();
    let figures;
    try { figures = computed(one); } catch (error) { $("live-state").textContent = `These sizes give no number: ${error.message}`; $("live-state").classList.add("broken"); return; }
    last = figures;
    told(one);
    figures_ = cards(figures, one);
    const root = tree(figures);
    icicle(root, focused);
    $("live-tree").replaceChildren(make("ul", {}, branches(root, root[state.measure])));
    roofline(figures);
    const context = state.phase === "decode" ? "cache_len" : "seq_len";
    curve("live-memory", context, state.phase === "decode" ? "cached tokens" : "new tokens", "bytes: cache (line), with weights (dashes)", sums => sums.cache, sums => sums && sums.cache !== null && sums.weights !== null ? sums.cache + sums.weights : null);
    curve("live-rate", "batch_size", "sequences in the batch", "tokens per second: eager, at most (line), as engines run it (dashes)", sums => sums.time ? sums.tokens / sums.time : null, (sums, one) => { const run = engine(one); return run && run.bytes <= device().usable ? run.rate : null; });
    table(figures);
    for (const button of document.querySelectorAll("[data-measure]")) button.setAttribute("aria-pressed", String(button.dataset.measure === state.measure));
    $("live-up").disabled = !state.zoom;
    remember();
  };

  // ---- controls

  /** An input of whole numbers from 1: what else is typed is marked and said, and gone when the input is left. */
  const whole = (number, name, set) => {
    number.addEventListener("input", () => {
      const given = Number(number.value), right = number.value.trim() !== "" && Number.isInteger(given) && given > 0 && given <= MOST;
      number.setAttribute("aria-invalid", String(!right));
      say(right ? "" : `${name} takes whole numbers from 1; ${value(name)} is still set.`);
      if (right) { state.values[name] = given; set(given); update(); }
    });
    number.addEventListener("change", () => { if (number.getAttribute("aria-invalid") === "true") { number.value = value(name); number.setAttribute("aria-invalid", "false"); } });
    return number;
  };
  const MOST = 1e12;
  const slider = (name, title, most) => {
    const range = make("input", {type: "range", min: 0, max: 1000, step: 1, "aria-label": `${title}, slider`}), number = make("input", {type: "number", min: 1, step: 1, "aria-label": title, "data-value": name});
    const show = () => { number.value = value(name); range.value = Math.round(1000 * Math.log(Math.max(1, value(name))) / Math.log(most)); };
    range.addEventListener("input", () => { state.values[name] = Math.max(1, Math.round(most ** (range.value / 1000))); number.value = state.values[name]; update(); });
    whole(number, name, set => { range.value = Math.round(1000 * Math.log(set) / Math.log(most)); });
    show();
    return make("div", {}, make("label", {}, title), make("span", {class: "pair"}, range, number));
  };
  const select = (name, title, options, get, set) => {
    const box = make("select", {"aria-label": title, "data-value": name});
    for (const [key, said] of options) box.append(make("option", {value: key}, said));
    box.value = String(get());
    box.addEventListener("change", () => { set(box.value); update(); });
    return make("div", {}, make("label", {}, title), box);
  };
  const controls = () => {
    const doc = document_(), held = name => doc.variables.some(v => v.name === name), titles = {batch_size: "Sequences (batch)", seq_len: "New tokens each", cache_len: "Cached tokens each", encoder_seq_len: "Tokens of the encoder"};
    const list = [];
    if (data.phases.length > 1) list.push(select("phase", "Pass", data.phases.map(p => [p.phase, p.phase]), () => state.phase, set => { state.phase = set; controls(); }));
    for (const name of CALL) if (held(name)) list.push(slider(name, titles[name], name === "batch_size" ? 4096 : Math.max(data.limit || 0, 1048576)));
    list.push(select("device", "Device", data.devices.map(d => [d.id, d.name]), () => state.device, set => { state.device = set; }));
    if (data.plans.length) list.push(select("plan", "Plan, as engines run it", data.plans.map(p => [p.id, p.name]), () => state.plan, set => { state.plan = set; }));
    const widths = [["2", "16 bits"], ["1", "8 bits"], ["0.5", "4 bits"], ["4", "32 bits"]], said = {w_bytes: "Weights", a_bytes: "Activations", kv_bytes: "Cache"};
    for (const name of WIDTHS) if (held(name)) list.push(select(name, said[name], widths, () => value(name), set => { state.values[name] = Number(set); }));
    $("live-controls").replaceChildren(...list);
    const sizes = doc.variables.filter(v => v.config_key && v.kind !== "derived" && v.kind !== "fixed" && ![...CALL, ...WIDTHS].includes(v.name));
    $("live-sizes").replaceChildren(...sizes.map(v => {
      const number = make("input", {type: "number", min: 1, step: 1, "aria-label": `${v.name}: ${v.meaning}`, "data-value": v.name});
      number.value = value(v.name);
      return make("div", {}, make("label", {}, `${v.name}: ${v.meaning}`), whole(number, v.name, () => {}));
    }));
  };

  // ---- what is told, kept and copied

  const remember = () => { const kept = {...state, pinned: state.pinned}; history.replaceState(null, "", `#what-if=${encodeURIComponent(JSON.stringify(kept))}`); };
  const recalled = () => {
    if (!location.hash.startsWith("#what-if=")) return false;
    try {
      const kept = JSON.parse(decodeURIComponent(location.hash.slice(9)));
      const names = new Set(data.phases.flatMap(p => p.documents.flatMap(d => d.variables.map(v => v.name))));
      const taken = ([name, v]) => names.has(name) && (WIDTHS.includes(name) ? [0.5, 1, 2, 4].includes(v) : Number.isInteger(v) && v > 0 && v <= MOST);
      const values = Object.fromEntries(Object.entries(kept.values || {}).filter(taken));
      state = {...initial(), ...(Object.hasOwn(phases, kept.phase) ? {phase: kept.phase} : {}), ...(data.devices.some(d => d.id === kept.device) ? {device: kept.device} : {}), ...(data.plans.some(p => p.id === kept.plan) ? {plan: kept.plan} : {}), ...(Object.hasOwn(MEASURES, kept.measure) ? {measure: kept.measure} : {}),
        ...(COLUMNS.some(([name]) => name === kept.sort) ? {sort: kept.sort} : {}), down: kept.down !== false, values, zoom: String(kept.zoom || ""), search: String(kept.search || ""),
        pinned: kept.pinned && Array.isArray(kept.pinned.figures) ? {figures: kept.pinned.figures.map(f => typeof f === "number" ? f : null)} : null};
      return true;
    } catch { return false; }
  };
  const say = text => { $("live-said").textContent = text; };
  const copy = async (text, what) => { try { await navigator.clipboard.writeText(text); say(`${what} copied.`); } catch { say(`${what} could not be copied: the browser refuses the clipboard.`); } };
  const download = (name, blob) => { const link = make("a", {href: URL.createObjectURL(blob), download: name}); link.click(); setTimeout(() => URL.revokeObjectURL(link.href), 1000); say(`${name} saved.`); };
  const csv = () => [COLUMNS.map(([, title]) => title).join(","), ...rowsShown(last).map(each => COLUMNS.map(([name]) => `"${String(each[name]).replaceAll('"', '""')}"`).join(","))].join("\n");
  /** A drawing with the colours that it has now, so that it stands alone. */
  const standalone = id => {
    const source = $(id), twin = source.cloneNode(true), live = [source, ...source.querySelectorAll("*")], copies = [twin, ...twin.querySelectorAll("*")];
    live.forEach((element, at) => { const style = getComputedStyle(element); for (const name of ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "font"]) copies[at].style.setProperty(name, style.getPropertyValue(name)); });
    const [, , width, height] = source.getAttribute("viewBox").split(" ");
    twin.setAttribute("xmlns", "http://www.w3.org/2000/svg"); twin.setAttribute("width", width); twin.setAttribute("height", height);
    twin.style.background = getComputedStyle(source).backgroundColor;
    return {text: new XMLSerializer().serializeToString(twin), width: Number(width), height: Number(height)};
  };
  const png = id => {
    const {text, width, height} = standalone(id), image = new Image();
    image.onload = () => { const canvas = make("canvas", {width: 2 * width, height: 2 * height}); canvas.getContext("2d").drawImage(image, 0, 0, 2 * width, 2 * height); canvas.toBlob(blob => download(`${id}.png`, blob)); };
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  };

  const point = node => {
    if (!node) return;
    const at = found(tree(last), node.dataset.path);
    if (at && at.row) $("live-source").textContent = `${at.row.file}:${at.row.line}\n\n${at.row.code}\n\n${at.row.operator}\nFLOPs: ${data.formulas[at.row.flops]}\nbytes read: ${data.formulas[at.row.read]}\nbytes written: ${data.formulas[at.row.write]}`;
    else if (at) $("live-source").textContent = `${at.path || data.model}\n\n${flops(at.flops)}, ${bytes(at.bytes)}, ${seconds(at.time)}`;
  };
  const zoom = node => { const at = node && found(tree(last), node.dataset.path); if (at && at.children.size) { state.zoom = at.path; update(at.path); } };
  const chart = $("live-icicle");
  chart.addEventListener("pointerover", event => point(event.target.closest(".node")));
  chart.addEventListener("focusin", event => point(event.target.closest(".node")));
  chart.addEventListener("click", event => zoom(event.target.closest(".node")));
  chart.addEventListener("keydown", event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); zoom(event.target.closest(".node")); } if (event.key === "Escape") up(); });
  const up = () => { state.zoom = state.zoom.split("/").slice(0, -1).join("/"); update(state.zoom); };
  $("live-up").addEventListener("click", up);
  for (const button of document.querySelectorAll("[data-measure]")) button.addEventListener("click", () => { state.measure = button.dataset.measure; update(); });
  $("live-search").addEventListener("input", event => { state.search = event.target.value; update(); });
  $("live-pin").addEventListener("click", () => { state.pinned = state.pinned ? null : {figures: figures_}; $("live-pin").textContent = state.pinned ? "Unpin" : "Pin to compare"; update(); });
  $("live-reset").addEventListener("click", () => { state = initial(); $("live-search").value = ""; $("live-pin").textContent = "Pin to compare"; controls(); update(); });
  $("live-link").addEventListener("click", () => copy(location.href, "Link"));
  $("live-csv").addEventListener("click", () => copy(csv(), "Table as CSV"));
  for (const button of document.querySelectorAll("[data-svg]")) button.addEventListener("click", () => download(`${button.dataset.svg}.svg`, new Blob([standalone(button.dataset.svg).text], {type: "image/svg+xml"})));
  for (const button of document.querySelectorAll("[data-png]")) button.addEventListener("click", () => png(button.dataset.png));
  addEventListener("hashchange", () => { if (recalled()) { controls(); update(); } });
  const shared = recalled();
  $("live-search").value = state.search;
  $("live-pin").textContent = state.pinned ? "Unpin" : "Pin to compare";
  controls();
  const before = location.hash;
  update();
  if (!shared) history.replaceState(null, "", before || location.pathname);
})();
