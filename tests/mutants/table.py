"""Guards, each with the change that takes it away and the tests that must notice.

A row names the guard, the file, text that stands in it exactly once, what it is replaced by, and the tests. Add a row for each guard
that you write; run.py says whether its tests notice.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One guard taken away."""

    guard: str
    file: str
    text: str
    replacement: str
    tests: tuple[str, ...]


_TOOLS = "tools/opscope_tools"
_FORMULA = "schemas/opscope_schemas/formula.py"
_POINTERS = ("tests/tools/report/test_pointers_stay_inside.py",)
_CHECKS = ("tests/tools/report/test_checks.py",)
_SAVED = ("tests/tools/report/test_write_and_check_report.py",)
_PLANTED = (
    "tests/tools/report/test_planted_faults.py::test_planted_faults_are_caught_with_what_was_expected_and_found",
)
_KEYS = ("tests/tools/test_cache_keys.py",)
_TRANSPORTS = ("tests/server/test_transports.py",)
_HTTP = ("tests/server/test_http.py",)
_CHILDREN = ("tests/tools/test_children.py",)
_CAGE = (
    "tests/security/test_cage.py",
    "tests/security/test_caged_trace.py::test_a_trusted_repository_is_traced_and_reaches_nothing",
)
_GROWTH = "tests/tools/test_growth.py"
_LOOKUPS = ("tests/tools/index/test_index_names.py", "tests/tools/index/test_index_bindings.py")

MUTANTS = (
    # files that may be read
    Mutant("a pointer out of the repository is not read", f"{_TOOLS}/report/sources.py",
           "            if not candidate.is_relative_to(root):\n", "            if False:\n", _POINTERS),
    Mutant("a pointer beside the packages is not read", f"{_TOOLS}/report/sources.py",
           "            inside = not repository.packages or first in", "            inside = True or first in", _POINTERS),
    Mutant("a search goes through no folder outside", f"{_TOOLS}/report/sources.py",
           " and folder.is_dir() and folder.is_relative_to(root):", " and folder.is_dir():", _POINTERS),
    Mutant("a tool's path stays in the repositories", f"{_TOOLS}/running/workspace.py",
           "            inside = candidate.is_relative_to(repository.root) and (\n", "            inside = True and (\n",
           ("tests/tools/test_paths_of_a_workspace.py",)),
    Mutant("a link out of the repository is no module", f"{_TOOLS}/source/python/repository.py",
           'if stat.S_ISREG(found.st_mode) and self._is_inside(path.rpartition("/")[0]):', "if stat.S_ISREG(found.st_mode):",
           ("tests/tools/index/test_index_names.py",)),
    Mutant("a report is saved in the output folder only", f"{_TOOLS}/report/saving.py",
           "    if not resolved.is_relative_to(output.resolve()):\n", "    if False:\n", ("tests/tools/report/test_write_and_check_report.py",)),
    # what a report is checked for
    Mutant("sections stand in order", f"{_TOOLS}/report/checks.py", "        elif lines[0] < last_line:\n", "        elif False:\n",
           ("tests/tools/report/test_checks.py::test_two_sections_that_changed_places_are_out_of_order",)),
    Mutant("rows are as wide as their head", f"{_TOOLS}/report/checks.py", "            elif len(cells) != len(table.head):\n",
           "            elif False:\n", _CHECKS),
    Mutant("marked numbers are those of the analysis", f"{_TOOLS}/report/checks.py",
           "            elif written is None or not _is(key, values[key], written, between):\n", "            elif False:\n", _CHECKS),
    Mutant("fences are closed", f"{_TOOLS}/report/checks.py", "        if not fence.closed:\n", "        if False:\n", _CHECKS),
    Mutant("links lead to headings", f"{_TOOLS}/report/checks.py", "            if found.group(1) not in anchors:\n",
           "            if False:\n", _CHECKS),
    Mutant("a report is compared line by line", f"{_TOOLS}/check_report.py", "differences(expected, page)", "()", _PLANTED),
    Mutant("a report is made anew", f"{_TOOLS}/check_report.py", "        expected = Page(anew.draft.report.text)\n", "", _PLANTED),
    Mutant("a facts file says what the analysis says", f"{_TOOLS}/check_report.py", "        if right != found:\n            yield _facts_differ(f\"{key}",
           "        if False:\n            yield _facts_differ(f\"{key}", _SAVED),
    Mutant("a report has its facts file", f"{_TOOLS}/check_report.py", "problems=(_of_facts(\"FACTS_MISSING\", said, beside, \"no such file\"),)",
           "problems=()", _PLANTED),
    Mutant("a facts file is the report's own", f"{_TOOLS}/check_report.py", "        if foreign:\n", "        if False:\n", _PLANTED),
    Mutant("blocks that moved are told as moved", f"{_TOOLS}/report/edits.py", "        if any(counts[a[at]] == 1 or a[at] in once for at in lines):\n",
           "        if False:\n", _PLANTED),
    Mutant("quantities are facts", f"{_TOOLS}/report/prose.py", "    for found in quantities(sentence.plain):\n", "    for found in ():\n", _PLANTED),
    Mutant("numbers in words are quantities", f"{_TOOLS}/report/quantities.py", "    for pattern in (_PARTS, _SPELT):\n", "    for pattern in ():\n", _PLANTED),
    Mutant("a fact counts what its sentence says", f"{_TOOLS}/report/prose.py", "_unit_fault(sentence, fact) or _phase", "_phase", _PLANTED),
    Mutant("a fact is of the pass that its sentence speaks of", f"{_TOOLS}/report/prose.py", " or _phase_fault(sentence, fact)", "", _PLANTED),
    Mutant("comparisons rest on a fact", f"{_TOOLS}/report/prose.py", "    yield from _comparisons(sentence, values)\n", "", _PLANTED),
    Mutant("claims are held to the model", f"{_TOOLS}/report/claims.py", "    yield from _of_traits(sentence, traits)\n", "", _PLANTED),
    Mutant("dtypes are the model's", f"{_TOOLS}/report/claims.py", "    yield from _of_dtype(sentence, traits, reader)\n", "", _PLANTED),
    Mutant("classes are what they are said to be", f"{_TOOLS}/report/claims.py", "    yield from _of_classes(sentence, traits, reader)\n", "", _PLANTED),
    # exact numbers
    Mutant("`//` divides exactly only what divides", _FORMULA,
           "        if exact is not None and exact._integral():\n            return exact\n        # the part",
           "        if exact is not None:\n            return exact\n        # the part", ("tests/schemas/test_formula.py",)),
    Mutant("`//` takes out only terms that divide", _FORMULA, "                if part is not None and part._integral():\n",
           "                if part is not None:\n", ("tests/schemas/test_formula.py",)),
    Mutant("a result is an integer", _FORMULA, "    if result.denominator != 1:\n", "    if False:\n", ("tests/schemas/test_formula.py",)),
    Mutant("a formula multiplies out to so many terms", _FORMULA, "    if _spread(tree) > _MAX_PARSED:\n", "    if False:\n",
           (f"{_GROWTH}::test_a_formula_without_end_is_refused_in_a_sentence_or_read_at_once", "tests/schemas/test_formula.py")),
    Mutant("a formula nests so many calls", _FORMULA, "    if made.depth > _MAX_CALLS:\n", "    if False:\n",
           (f"{_GROWTH}::test_a_formula_without_end_is_refused_in_a_sentence_or_read_at_once",)),
    Mutant("only what is a divisor less one more is rounded up", f"{_TOOLS}/kernels/values/expressions.py",
           "(True, divisor - 1)", "(True, divisor - 2)", ("tests/tools/kernels/test_size_expressions.py",)),
    Mutant("a launch holds so many threads", f"{_TOOLS}/kernels/compiled/occupancy.py",
           "    if len(block) > 2 and block[2] > _DEEPEST_BLOCK:\n", "    if False:\n", ("tests/tools/kernels/test_occupancy.py",)),
    Mutant("registers of a block have a limit", f"{_TOOLS}/kernels/compiled/occupancy.py", "        if held > _REGISTERS_PER_BLOCK:\n",
           "        if False:\n", ("tests/tools/kernels/test_occupancy.py",)),
    # which class a name means
    Mutant("a class comes before its bases", f"{_TOOLS}/source/python/linearisation.py", "            if not self._behind[self._keys[number][at]]:\n",
           "            if True:\n", ("tests/tools/index/test_index_names.py", "tests/tools/index/test_index_runtime.py")),
    Mutant("a star takes what `__all__` lists", f"{_TOOLS}/source/python/names.py", "        return name in exports.names\n", "        return True\n",
           _LOOKUPS),
    Mutant("an alias leads to what it names", f"{_TOOLS}/source/python/names.py",
           "        if _DOTTED.match(row.value) and not hasattr(builtins,", "        if False and not hasattr(builtins,", _LOOKUPS),
    Mutant("a way that crosses another goes no further", f"{_TOOLS}/source/python/names.py", "        if step not in trail.found:\n",
           "        if trail.found.get(step) is None:\n", (f"{_GROWTH}::test_a_question_about_more_source_takes_about_as_much_more_work",)),
    Mutant("an ancestor is ordered once", f"{_TOOLS}/source/python/linearisation.py", "    if not circular:\n        known.update(ordered)\n", "",
           (f"{_GROWTH}::test_a_question_about_more_source_takes_about_as_much_more_work",)),
    Mutant("what a question knows ends with it", f"{_TOOLS}/source/python/lookup_cache.py",
           "            self._open, self.found, self.orders = outer\n", "            self._open = outer[0]\n",
           ("tests/tools/index/test_index_names.py", "tests/tools/index/test_questions.py")),
    # what a kept answer depends on, and what may be imported
    Mutant("a kept answer is of this version of the code", f"{_TOOLS}/running/runner.py", "            keys.engine_version(),\n", "", _KEYS),
    Mutant("a kept answer is of this version of the source", f"{_TOOLS}/running/runner.py", "            repository.version,\n", "",
           _KEYS),
    Mutant("a kept answer is of these files", f"{_TOOLS}/running/runner.py",
           "            workspace.tree(repository, tool.sources).now().fingerprint,\n", "", _KEYS),
    Mutant("a kept answer is of this trust", f"{_TOOLS}/running/runner.py", "            name in workspace.trusted,\n", "", _KEYS),
    Mutant("only trusted code is imported", f"{_TOOLS}/running/trust.py",
           "    return repository.installed or repository.name in workspace.trusted\n", "    return True\n",
           ("tests/tools/trace/test_repositories.py", "tests/tools/test_cost_errors.py")),
    Mutant("a stand-in for transformers is imported only where it is trusted", f"{_TOOLS}/running/trust.py",
           "    return repository.installed or repository.name in workspace.trusted\n",
           "    return repository.installed or repository.name in (*workspace.trusted, *DEFAULT_PACKAGES)\n",
           ("tests/tools/test_other_sources.py",)),
    Mutant("a kept text is what was written", "cache/opscope_cache/textcache.py",
           "return text if kept[:_DIGITS] == digest(key, text) else None", "return text", ("tests/security/test_hostile_cache.py",)),
    Mutant("a trace is of the source it imported", f"{_TOOLS}/trace/engine.py",
           "keys.digest(keys.engine_version(), self._python, self._sources(), request.model_dump_json())",
           "keys.digest(keys.engine_version(), self._python, request.model_dump_json())", _KEYS),
    # who may ask, and for how long
    Mutant("a server beyond loopback needs a token", "server/opscope_server/access.py",
           '    if token is None and host not in {"127.0.0.1", "localhost", "::1"}:\n', "    if False:\n", _TRANSPORTS),
    Mutant("only the token opens", "server/opscope_server/access.py",
           "        return hmac.compare_digest(_digest(text), self._digest)\n", "        return True\n", _HTTP),
    Mutant("other ports are no hosts of ours", "server/opscope_server/access.py", '[f"{name}:{port}" for name in (*LOOPBACK, *bound)]',
           '[f"{name}:*" for name in (*LOOPBACK, *bound)]', _HTTP),
    Mutant("a call ends at its deadline", "server/opscope_server/lanes.py",
           "            job.settle(Outcome(error=_late(rules, waited)))\n", "", ("tests/server/test_lanes.py",)),
    Mutant("a queue is bounded", "server/opscope_server/lanes.py", "        if running + waiting >= rules.slots + rules.room:\n",
           "        if False:\n", ("tests/server/test_lanes.py",)),
    Mutant("messages nest no deeper than JSON is written", "server/opscope_server/messages.py", "MOST_LEVELS = 64", "MOST_LEVELS = 64_000",
           ("tests/server/test_messages.py",)),
    Mutant("a factory is one that a trusted repository defines", f"{_TOOLS}/running/trust.py",
           "            if not is_trusted(workspace, repository):\n                continue\n", "", ("tests/security/test_factories.py",)),
    Mutant("a traced class is a module", f"{_TOOLS}/running/trust.py",
           "    if not is_trusted(workspace, symbol.repository) and not _is_module(index, symbol):\n", "    if False:\n",
           ("tests/security/test_factories.py",)),
    Mutant("a configuration lies where it may be read", f"{_TOOLS}/running/config_files.py", "    if not _inside(path, places):\n", "    if False:\n",
           ("tests/security/test_foreign_files.py",)),
    # child processes and their cage
    Mutant("relative entries of search paths stay behind", f"{_TOOLS}/children/environment.py",
           "for entry in path.split(os.pathsep) if Path(entry).is_absolute())", "for entry in path.split(os.pathsep))", _CHILDREN),
    Mutant("only what is listed passes into a child", f"{_TOOLS}/children/environment.py",
           "        if name in _PASSED or", "        if True or", _CHILDREN),
    Mutant("a child ends with the process that started it", f"{_TOOLS}/children/launcher.py",
           "    _end_with(specification[\"parent\"], signal.SIGTERM if kept else signal.SIGKILL)\n", "", _CHILDREN),
    Mutant("a program ends with its keeper", f"{_TOOLS}/children/launcher.py",
           "        _end_with(keeper, signal.SIGKILL)\n", "", _CHILDREN),
    Mutant("what a program started ends with it", f"{_TOOLS}/children/launcher.py", "    _end_all()\n    code", "    code", _CHILDREN),
    Mutant("limits are set", f"{_TOOLS}/children/launcher.py", "    resource.setrlimit(what, (value, value))\n", "    del value\n",
           _CHILDREN),
    Mutant("scratch folders of the living stay", f"{_TOOLS}/children/scratch.py", "FileLock(_owner(folder), timeout=0):",
           "contextlib.nullcontext():", _CHILDREN),
    Mutant("files are confined", f"{_TOOLS}/children/launcher.py", "        _confine(cage)\n", "        pass\n", _CAGE),
    Mutant("system calls are walled", f"{_TOOLS}/children/launcher.py", '        seal(bytes.fromhex(cage["walls"]))\n', "        pass\n",
           _CAGE),
    Mutant("no process is made by clone", f"{_TOOLS}/children/cage.py",
           '        found.add_rule(refused, "clone", seccomp.Arg(0, seccomp.MASKED_EQ, _CLONE_THREAD, 0))\n', "", _CAGE),
    Mutant("others are not limited or slowed", f"{_TOOLS}/children/cage.py",
           "            found.add_rule(refused, name, seccomp.Arg(place, seccomp.NE, 0))\n", "            pass\n", _CAGE),
    Mutant("the trace worker is caged", f"{_TOOLS}/trace/client.py", "limits=self._limits, cage=cage, stderr=self._log,",
           "limits=self._limits, stderr=self._log,", _CAGE),
    Mutant("the trace worker is sealed", f"{_TOOLS}/trace/start.py", '        sealing["seal"](bytes.fromhex(given["seal"]))\n',
           "        pass\n", _CAGE),
    Mutant("a start at home opens no configurations there", f"{_TOOLS}/running/config_files.py", "        if not _is_wide(workspace.output):\n",
           "        if True:\n", ("tests/security/test_foreign_files.py",)),
)  # fmt: skip
