"""The tool `extract_config`: hyperparameters, kernel configuration, constraints and assertions, each with its line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from opscope_schemas.common import Repository, ToolArguments
from opscope_schemas.errors import SourceError, UnknownNameError
from opscope_schemas.extracted_config import (
    Check,
    Configuration,
    Constant,
    ExtractConfigResult,
    KernelHook,
    KernelSettings,
)
from pydantic import Field

from opscope_tools.costing.checkpoints import checkpoint_named
from opscope_tools.costing.configured import of_defaults
from opscope_tools.extract_config.checks import (
    built_classes,
    checks_of_classes,
    checks_of_files,
    checks_of_model,
    constants_of_files,
)
from opscope_tools.extract_config.kernel_settings import FoundKernels, checks_of_kernels, find_kernels, with_constants
from opscope_tools.extract_config.parameters import Parameters, Sources
from opscope_tools.extract_config.shorter_forms import LADDER, fitted, paged
from opscope_tools.extract_config.subject import CONFIG_NAME, NATIVE, Subject, find_subject, model_files, of_class
from opscope_tools.find_forward import source_notes
from opscope_tools.index import ClassSymbol, Index
from opscope_tools.index.configurations.configurations import read_configuration
from opscope_tools.running.config_files import Config, is_whole, read_config
from opscope_tools.running.engines import index_of
from opscope_tools.running.tool import Tool, ToolContext
from opscope_tools.settings import kernel_hooks
from opscope_tools.source.python.rows import AssignRow

#: configurations that one answer about files reads
_MOST_CLASSES = 60
_KERNEL_WORDS = re.compile(rb"triton|__global__|tilelang|cute\.")


class ExtractConfigArguments(ToolArguments):
    """What `extract_config` takes."""

    target: str = Field(
        max_length=1000,
        description="Model type (`llama`), checkpoint, config or model class, `path.py:line`, kernel, file, folder or repository.",
    )
    repo: str | None = Field(default=None, description="Repository to look in; default: all.")
    config: Config = Field(default=None, description="Path of a config.json, or an object, shown beside the defaults.")
    section: Literal["hyperparameters", "kernels", "constraints", "constants"] | None = Field(
        default=None, description="Only this part, paged."
    )
    detail: Literal["summary", "full"] = Field(default="summary", description="summary: below 25,000 characters.")
    offset: int = Field(default=0, ge=0, description="Entries to skip.")
    limit: int = Field(default=50, ge=1, le=500, description="Entries to return.")


def run(arguments: ExtractConfigArguments, context: ToolContext) -> ExtractConfigResult:
    """Raises `UnknownNameError`, `AmbiguousNameError`, `PathRefusedError`, `ConfigError`."""
    index = index_of(context.workspace)
    with index.question(context.checkpoint):
        return _answered(index, arguments, context)


def _answered(index: Index, arguments: ExtractConfigArguments, context: ToolContext) -> ExtractConfigResult:
    given = read_config(context.workspace, arguments.config)
    checkpoint = checkpoint_named(arguments.target)
    if checkpoint is not None:
        given = {**checkpoint.config, **(given or {})}
    target = arguments.target if checkpoint is None else checkpoint.model_type
    subject = find_subject(index, context, target, arguments.repo, given)
    context.checkpoint()
    answer = _Answer(arguments, context, index, given)
    if checkpoint is not None:
        answer.notes.append(checkpoint.sentence())
    elif subject.model_type and (arguments.config is None or (given and not is_whole(given))):
        answer.notes.append(of_defaults(subject.model_type, given))
    result = {"kernels": answer.of_kernels, "files": answer.of_files}.get(subject.kind, answer.of_class)(subject)
    result = paged(result, arguments.section, arguments.offset, arguments.limit)
    return fitted(result, arguments.section) if arguments.detail == "summary" else result


class _Answer:
    def __init__(
        self, arguments: ExtractConfigArguments, context: ToolContext, index: Index, given: Mapping[str, object] | None
    ) -> None:
        self.arguments, self.context, self.index, self.given = arguments, context, index, given
        self.sources = Sources(index)
        self.notes: list[str] = []

    # a model or a configuration

    def of_class(self, subject: Subject) -> ExtractConfigResult:
        config = subject.config
        assert config is not None
        configurations = self._configured(config, subject.files)
        names = {p.name for c in configurations for p in c.hyperparameters}
        names |= {alias for c in configurations for p in c.hyperparameters for alias in p.aliases}
        main = configurations[0]
        parents = [s for s in self._parents(config) if s.qualified_name in {config.qualified_name, *main.parents}]
        checks = self._checks(subject, parents, configurations, names) if self._wants("constraints") else []
        hooks, kernels = [], FoundKernels()
        if self._wants("kernels"):
            hooks = [h for repository, file in subject.files for h in kernel_hooks(self.sources.of(repository, file))]
            kernels = self._kernels_of_files(subject.files)
        if not subject.files and main.kind != "arguments":
            self.notes.append(
                "No file beside the configuration class defines modules that name it: reads are not counted."
            )
        self.notes += source_notes(self.index, config)
        repositories = {config.repository.name: config.repository, **{r.name: r for r, _ in subject.files}}
        return self._result(
            subject, checks, repositories, configurations=tuple(configurations), kernel_hooks=tuple(hooks),
            kernels=tuple(kernels.settings), kernel_count=kernels.total,
            class_name=(subject.model or config).qualified_name, model_type=subject.model_type,
        )  # fmt: skip

    def _checks(
        self, subject: Subject, parents: list[ClassSymbol], configurations: list[Configuration], names: set[str]
    ) -> list[Check]:
        """Of the configuration, of the model's classes, of held configurations, then of what the first one derives from."""
        plain = configurations[0].kind == "arguments"
        checks = [] if plain else checks_of_classes(self.sources, parents[:1], names)
        if subject.model is not None:
            checks += checks_of_model(self.sources, self._classes(subject), names)
        for inner in configurations[1:]:
            checks += self._inner_checks(inner, names)
        if not plain:
            checks += checks_of_classes(self.sources, parents[1:], names)
        return list(dict.fromkeys(checks))

    def _configured(self, config: ClassSymbol, files: Sequence[tuple[Repository, str]]) -> list[Configuration]:
        read = read_configuration(self.index.resolver, config, self.given)
        self.notes += read.notes
        if self.given and read.open_ended:
            self.notes.append(
                "The constructor takes further keyword arguments: a key that source does not name is kept as it is."
            )
        described = Parameters(self.sources, files, lambda symbol: model_files(self.index, symbol))
        return self._without_foreign_keys(described.describe(read, self.given))

    def _without_foreign_keys(self, configurations: list[Configuration]) -> list[Configuration]:
        """Of a file only keys that source knows are shown, since it may be no configuration; the caller's own object is
        the caller's."""
        if not isinstance(self.arguments.config, str):
            return configurations
        if count := sum(len(c.unknown_keys) for c in configurations):
            self.notes.append(f"The config file holds {count} keys that source knows nothing of.")
        return [c.model_copy(update={"unknown_keys": ()}) for c in configurations]

    def _parents(self, config: ClassSymbol) -> list[ClassSymbol]:
        return [base for base in self.index.resolver.mro(config) if not isinstance(base, str)]

    def _classes(self, subject: Subject) -> list[ClassSymbol]:
        classes, others, built = built_classes(self.index, subject)
        if not built:
            self.notes.append(
                "The model could not be built from its defaults: constraints are those of the classes that its text leads to."
            )
        if others:
            shown = ", ".join(others[:6]) + (f" and {len(others) - 6} more" if len(others) > 6 else "")
            self.notes.append(f"Constraints of classes in other files are left out: {shown}. Ask for those models.")
        return classes

    def _inner_checks(self, inner: Configuration, names: set[str]) -> list[Check]:
        found = [f.symbol for f in self.index.resolver.absolute(inner.class_name) if f.symbol is not None]
        return checks_of_classes(self.sources, found[:1], names)

    def _kernels_of_files(self, files: Sequence[tuple[Repository, str]]) -> FoundKernels:
        """Kernels that the files define themselves."""
        found = FoundKernels()
        for repository, file in files:
            if _KERNEL_WORDS.search(self.sources.of(repository, file).text.encode()):
                mine = find_kernels(self.context, [repository], file, 0, self._limit("kernels"), must=False)
                found.settings += mine.settings
                found.described += mine.described
                found.total += mine.total
        return found

    # kernels

    def of_kernels(self, subject: Subject) -> ExtractConfigResult:
        offset, limit = self._page("kernels")
        repositories = self.context.workspace.select(self.arguments.repo)
        try:
            kernels = find_kernels(self.context, repositories, subject.kernels, offset, limit, must=True)
        except UnknownNameError as error:
            near = list(dict.fromkeys([*self.index.nearest(subject.kernels, self.arguments.repo), *error.nearest]))
            raise UnknownNameError(
                error.kind, self.arguments.target, near[:6],
                next_step="Name a configuration or model class, path.py:line, a kernel, a file or a folder; register a "
                "repository with --repo NAME=PATH.",
            ) from None  # fmt: skip
        self.notes += kernels.notes
        checks = checks_of_kernels(self.sources, kernels.described)
        files = list(dict.fromkeys((r.name, k.file) for r, k in kernels.described))
        by_name = {r.name: r for r, _ in kernels.described}
        constants = constants_of_files(self.sources, self.context, [(by_name[name], file) for name, file in files])
        return self._result(
            subject, checks, {r.name: r for r in kernels.repositories},
            kernels=tuple(with_constants(kernels.settings, constants)), kernel_count=kernels.total, constants=tuple(constants),
        )  # fmt: skip

    # files

    def of_files(self, subject: Subject) -> ExtractConfigResult:
        repositories = {r.name: r for r, _ in subject.files}
        configurations: list[Configuration] = []
        classes = self._configuration_classes(subject.files) if self._wants("hyperparameters") else []
        for symbol in classes[:_MOST_CLASSES]:
            self.context.checkpoint()
            try:
                found = of_class(self.index, symbol)
                configurations.append(_alone(self._configured(symbol, found.files)[0]))
            except SourceError as error:
                self.notes.append(str(error))
        if len(classes) > _MOST_CLASSES:
            rest = ", ".join(symbol.name for symbol in classes[_MOST_CLASSES:][:20])
            self.notes.append(
                f"{len(classes)} configuration classes; those after the first {_MOST_CLASSES} are left out: {rest}. Name a file."
            )
        names = {p.name for c in configurations for p in c.hyperparameters}
        checks = checks_of_files(self.sources, self.context, subject.files, names) if self._wants("constraints") else []
        constants = constants_of_files(self.sources, self.context, subject.files) if self._wants("constants") else []
        kernels = FoundKernels()
        if self._wants("kernels") and self._may_hold_kernels(subject):
            offset, limit = self._page("kernels")
            kernels = find_kernels(
                self.context, list(repositories.values()), subject.kernels, offset, limit, must=False
            )
            self.notes += kernels.notes
        return self._result(
            subject, checks, repositories, configurations=tuple(configurations), constants=tuple(constants),
            kernels=tuple(kernels.settings), kernel_count=kernels.total,
        )  # fmt: skip

    def _wants(self, section: str) -> bool:
        return self.arguments.section in {None, section} or (
            section == "hyperparameters" and self.arguments.section == "constraints"
        )

    def _may_hold_kernels(self, subject: Subject) -> bool:
        if len(subject.files) != 1 or subject.files[0][1].endswith(NATIVE):
            return bool(subject.files)
        return _KERNEL_WORDS.search(self.sources.of(*subject.files[0]).text.encode()) is not None

    def _configuration_classes(self, files: Sequence[tuple[Repository, str]]) -> list[ClassSymbol]:
        """Records and classes that are configurations by their name; tensors handed around in records are none."""
        found = []
        trees = {tree.repository.name: tree for tree in self.index.resolver.trees}
        for number, (repository, file) in enumerate(files):
            if number % 32 == 0:
                self.context.checkpoint()
            if not file.endswith(".py") or file.rpartition("/")[2].startswith("modular_"):
                continue
            unit = trees[repository.name].unit(file)
            for path, row in unit.classes():
                symbol = ClassSymbol(unit, path, row)
                if "<locals>" not in path and _is_configuration(self.index, symbol):
                    found.append(symbol)
        return found

    # the result

    def _limit(self, section: str) -> int:
        return self._page(section)[1]

    def _page(self, section: str) -> tuple[int, int]:
        own = self.arguments.section == section
        return (self.arguments.offset, self.arguments.limit) if own else (0, 10)

    def _result(
        self, subject: Subject, checks: list[Check], repositories: dict[str, Repository], *,
        configurations: tuple[Configuration, ...] = (), constants: tuple[Constant, ...] = (),
        kernels: tuple[KernelSettings, ...] = (), kernel_count: int = 0, kernel_hooks: tuple[KernelHook, ...] = (),
        class_name: str = "", model_type: str = "",
    ) -> ExtractConfigResult:  # fmt: skip
        return ExtractConfigResult(
            target=self.arguments.target, target_kind=subject.kind, constraints=tuple(checks), constraint_count=len(checks),
            constraint_kinds=dict(Counter(check.kind for check in checks).most_common()), constant_count=len(constants),
            files=tuple(dict.fromkeys(check.file for check in checks))[:40],
            sources=tuple(self.context.workspace.source(r) for r in repositories.values()),
            notes=tuple(dict.fromkeys(self.notes)), configurations=configurations, constants=constants, kernels=kernels,
            kernel_count=kernel_count, kernel_hooks=kernel_hooks, class_name=class_name, model_type=model_type,
        )  # fmt: skip


def _alone(configuration: Configuration) -> Configuration:
    """A configuration without those that it holds: among the classes of a file each stands for itself."""
    own = tuple(p.model_copy(update={"sub_config": ""}) for p in configuration.hyperparameters)
    return configuration.model_copy(update={"hyperparameters": own})


def _is_configuration(index: Index, symbol: ClassSymbol) -> bool:
    mro = index.mro(symbol)
    if "torch.nn.modules.module.Module" in mro or any(
        name in {"dict", "collections.OrderedDict", "enum.Enum"} for name in mro
    ):
        return False
    if CONFIG_NAME.search(symbol.name):
        return True
    decorated = any(re.match(r"([\w.]+\.)?(dataclass|define|frozen|attrs|s)\b", text) for text in symbol.row.decorators)
    record = decorated or bool({"pydantic.BaseModel", "pydantic.main.BaseModel", "msgspec.Struct"} & set(mro))
    annotated = [row.annotation for row in symbol.row.body if isinstance(row, AssignRow) and row.annotation]
    return record and bool(annotated) and not any("Tensor" in text for text in annotated)


EXTRACT_CONFIG: Tool[ExtractConfigArguments, ExtractConfigResult] = Tool(
    name="extract_config",
    title="Configuration and constraints of an implementation",
    description=(
        "What configures an implementation and what it demands, read from source: hyperparameters (default, "
        "meaning, aliases; beside the values of `config`), kernel settings (tiles, constexpr and "
        "template parameters, autotune sets), constraints (assert, raise, TORCH_CHECK, "
        "static_assert, capability and dtype tests). What source does not decide is `open`."
    ),
    arguments=ExtractConfigArguments,
    result=ExtractConfigResult,
    run=run,
    shorter=LADDER,
    finds=("configurations", "constants", "kernels", "kernel_hooks", "constraints"),
    otherwise="name a configuration or model class, another file, or the whole repository; map_repo lists its config classes and files.",
)
