"""Errors on their way through Spark, which knows nothing but text."""

from __future__ import annotations

import base64
import json
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest

import arraystore.errors
from arraystore._conflicts import Conflict, ConflictType
from arraystore.errors import (
    ArrayStoreError,
    ChunkDamagedError,
    ConflictError,
    FormatError,
    InvalidInputError,
    LogForkError,
    LogHoleError,
    MergeConflictError,
    ObjectNotFoundError,
    RebaseFailedError,
    SessionStateError,
    SourceChangedError,
)
from arraystore.spark.errors import SparkUnavailableError, TaskFailedError, code_of, marked_text, translate_error
from arraystore.spark.regions.write_regions import RegionWriteError

CODES = {
    "AlreadyExistsError": "ARRAYSTORE_ALREADY_EXISTS",
    "ArrayStoreError": "ARRAYSTORE_ARRAY_STORE",
    "ChunkDamagedError": "ARRAYSTORE_CHUNK_DAMAGED",
    "ConflictError": "ARRAYSTORE_CONFLICT",
    "FormatError": "ARRAYSTORE_FORMAT",
    "InvalidInputError": "ARRAYSTORE_INVALID_INPUT",
    "InvalidKeyError": "ARRAYSTORE_INVALID_KEY",
    "LogForkError": "ARRAYSTORE_LOG_FORK",
    "LogHoleError": "ARRAYSTORE_LOG_HOLE",
    "MergeConflictError": "ARRAYSTORE_MERGE_CONFLICT",
    "NodeNotFoundError": "ARRAYSTORE_NODE_NOT_FOUND",
    "NotFoundError": "ARRAYSTORE_NOT_FOUND",
    "ObjectNotFoundError": "ARRAYSTORE_OBJECT_NOT_FOUND",
    "PermissionDeniedError": "ARRAYSTORE_PERMISSION_DENIED",
    "ReadOnlyError": "ARRAYSTORE_READ_ONLY",
    "RebaseFailedError": "ARRAYSTORE_REBASE_FAILED",
    "RefNotFoundError": "ARRAYSTORE_REF_NOT_FOUND",
    "RepositoryGoneError": "ARRAYSTORE_REPOSITORY_GONE",
    "RepositoryNotFoundError": "ARRAYSTORE_REPOSITORY_NOT_FOUND",
    "SelectionError": "ARRAYSTORE_SELECTION",
    "SessionExpiredError": "ARRAYSTORE_SESSION_EXPIRED",
    "SessionStateError": "ARRAYSTORE_SESSION_STATE",
    "SnapshotExpiredError": "ARRAYSTORE_SNAPSHOT_EXPIRED",
    "SnapshotNotFoundError": "ARRAYSTORE_SNAPSHOT_NOT_FOUND",
    "SparkUnavailableError": "ARRAYSTORE_SPARK_UNAVAILABLE",
    "SourceChangedError": "ARRAYSTORE_SOURCE_CHANGED",
    "StorageError": "ARRAYSTORE_STORAGE",
    "StreamRestartedError": "ARRAYSTORE_STREAM_RESTARTED",
    "TaskFailedError": "ARRAYSTORE_TASK_FAILED",
    "UnsupportedStorageError": "ARRAYSTORE_UNSUPPORTED_STORAGE",
    "VirtualReferenceError": "ARRAYSTORE_VIRTUAL_REFERENCE",
}
"""What programs outside of Python look for.  Codes may be added; those that are here stay."""

WITH_FIELDS = [
    ConflictError("S1", "S2", "main"),
    ConflictError(None, None),
    FormatError("packs/X", "ends in the middle"),
    LogForkError("refs/R/branch/main/000000000003", "goes on from another record"),
    LogHoleError("refs/R/branch/main/000000000003", "is missing"),
    ObjectNotFoundError("packs/X", "file:///tmp/r"),
    MergeConflictError("two forks wrote a", "a", ((0, 1), (7, 8))),
    MergeConflictError("two forks wrote a"),
    ChunkDamagedError("chunks/X", 1032, 1024, "a/b", (0, 7)),
    ChunkDamagedError("chunks/X", 0, 1024),
    SourceChangedError("s3://bucket/key", "etag a", "etag b", "a/b", (0, 7)),
    SourceChangedError("s3://bucket/key", "etag a", "etag b"),
]


def kinds() -> list[type[ArrayStoreError]]:
    """Return all public classes of errors."""
    found = [getattr(arraystore.errors, name) for name in arraystore.errors.__all__]
    return [kind for kind in found if issubclass(kind, ArrayStoreError)] + [SparkUnavailableError, TaskFailedError]


def in_spark(text: str) -> Exception:
    """Return an error as Spark makes one of what a worker said."""
    return RuntimeError(
        "[PYTHON_DATA_SOURCE_ERROR] Failed to commit: Traceback (most recent call last):\n"
        '  File "worker.py", line 1, in main\n    raise RuntimeError(marked(error))\n'
        f"RuntimeError: {text}\n SQLSTATE: 38000\n\tat org.apache.spark.sql.X.y(Z.scala:1)\n" + text[:40]
    )


def made_from(body: object) -> BaseException:
    code = body.get("code") if isinstance(body, dict) else ""
    return translate_error(in_spark(f"[{code}] text <<arraystore:{mark_of(json.dumps(body).encode())}>>"))


def mark_of(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()


def test_codes_stay_what_they_are():
    assert {kind.__name__: code_of(kind) for kind in kinds()} == CODES


@pytest.mark.parametrize(
    "kind",
    [kind for kind in kinds() if kind not in {type(error) for error in WITH_FIELDS} | {RebaseFailedError}],
    ids=lambda kind: kind.__name__,
)
def test_errors_of_every_class_come_back_as_they_were(kind: type[ArrayStoreError]):
    text = marked_text(kind("no node 'ä/b'\nat <<all>> 😀"))
    found = translate_error(in_spark(text))
    if kind is ArrayStoreError:  # nobody catches the base class alone
        kind = TaskFailedError
    assert type(found) is kind
    assert str(found) == "no node 'ä/b'\nat <<all>> 😀"
    assert text.startswith(f"[{code_of(kind)}] no node")


@pytest.mark.parametrize("error", WITH_FIELDS, ids=lambda error: type(error).__name__)
def test_what_errors_say_beside_their_message_comes_back(error: ArrayStoreError):
    found = translate_error(in_spark(marked_text(error)))
    assert type(found) is type(error)
    assert vars(found) == vars(error)
    assert str(found) == str(error)
    assert str(pickle.loads(pickle.dumps(found))) == str(error)


def test_a_failed_rebase_comes_back_with_its_snapshots_and_its_conflicts_as_text():
    error = RebaseFailedError("S2", [Conflict(ConflictType.ZarrMetadataDoubleUpdate, "/temp")], "S1", "main")
    found = translate_error(in_spark(marked_text(error)))
    assert isinstance(found, RebaseFailedError)
    assert (found.snapshot, found.actual_parent, found.expected_parent, found.branch) == ("S2", "S2", "S1", "main")
    assert found.message == error.message
    assert "/temp" in found.message
    assert found.conflicts == []


def test_numbers_of_numpy_do_not_keep_an_error_from_travelling():
    chunks = (tuple(np.array([3, 4])), tuple(np.array([5, 6], dtype="u2")))
    found = translate_error(in_spark(marked_text(MergeConflictError("collided", "a", chunks))))
    assert isinstance(found, MergeConflictError)
    assert found.chunks == ((3, 4), (5, 6))


def test_errors_that_are_not_public_come_back_as_the_nearest_that_is():
    class OnlyHereError(SessionStateError):
        pass

    assert type(translate_error(in_spark(marked_text(OnlyHereError("closed"))))) is SessionStateError
    assert type(translate_error(in_spark(marked_text(RegionWriteError("no values"))))) is TaskFailedError


def test_errors_of_users_come_back_with_the_name_of_their_class():
    found = translate_error(in_spark(marked_text(ZeroDivisionError("division by zero"))))
    assert type(found) is TaskFailedError
    assert str(found) == "ZeroDivisionError: division by zero"


def test_endless_messages_are_cut():
    text = marked_text(InvalidInputError("x" * 1_000_000))
    assert len(text) < 200_000
    found = translate_error(in_spark(text))
    assert isinstance(found, InvalidInputError)
    assert found.message == "x" * 32768 + " ..."


def test_the_outermost_of_several_errors_counts():
    inner, outer = marked_text(FormatError("packs/X", "is damaged")), marked_text(SessionStateError("cannot be merged"))
    assert type(translate_error(in_spark(f"{inner}\nThe above exception was ...\n{outer}"))) is SessionStateError


def test_a_message_that_quotes_a_mark_does_not_change_what_the_error_is():
    quoted = marked_text(InvalidInputError("row says: " + marked_text(FormatError("a", "b"))))
    assert type(translate_error(in_spark(quoted))) is InvalidInputError


def test_errors_are_found_in_the_cause_and_in_the_parameters_of_what_spark_raises():
    outer = RuntimeError("Job aborted")
    outer.__cause__ = RuntimeError(marked_text(SessionStateError("closed")))
    assert type(translate_error(outer)) is SessionStateError

    class CapturedError(Exception):
        def getMessageParameters(self) -> dict[str, str]:  # noqa: N802 - PySpark's name
            return {"msg": marked_text(SessionStateError("closed"))}

    assert type(translate_error(CapturedError("short"))) is SessionStateError


def test_other_errors_stay_the_very_objects_that_they_are():
    for error in (ValueError("x"), KeyboardInterrupt(), FormatError("a", "b"), RuntimeError("[ARRAYSTORE_CONFLICT] x")):
        assert translate_error(error) is error


GOOD = {"code": "ARRAYSTORE_INVALID_INPUT", "fields": {}}


@pytest.mark.parametrize(
    "body",
    [
        [],
        None,
        7,
        "text",
        {},
        {**GOOD, "code": "ARRAYSTORE_NOT_KNOWN"},
        {**GOOD, "code": "os.system"},
        {**GOOD, "code": ["ARRAYSTORE_INVALID_INPUT"]},
        {**GOOD, "code": "ARRAYSTORE_CONFLICT"},
        {**GOOD, "code": "ARRAYSTORE_CONFLICT", "fields": None},
        {**GOOD, "code": "ARRAYSTORE_CONFLICT", "fields": []},
        {**GOOD, "code": "ARRAYSTORE_MERGE_CONFLICT", "fields": {"path": "a", "chunks": 7}},
        {**GOOD, "code": "ARRAYSTORE_CHUNK_DAMAGED", "fields": {"object_name": "a", "path": "a", "chunk": None}},
        {**GOOD, "code": "ARRAYSTORE_SOURCE_CHANGED", "fields": {"path": "a", "chunk": [[]]}},
        {**GOOD, "code": "ARRAYSTORE_MERGE_CONFLICT", "fields": {"path": "a", "chunks": [[None]]}},
        {**GOOD, "code": "ARRAYSTORE_MERGE_CONFLICT", "fields": {"path": "a", "chunks": [[float("inf")]]}},
        {**GOOD, "code": "ARRAYSTORE_MERGE_CONFLICT", "fields": {"path": "a", "chunks": [[float("nan")]]}},
    ],
)
def test_marks_that_nobody_made_are_passed_over(body: object):
    assert type(made_from(body)) is RuntimeError


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"\xff\xfe", b"[" * 200_000, b'{"code":' * 100_000, b"1" * 10_000, b"NaN"],
    ids=["empty", "open", "no text", "nested", "nested objects", "long number", "nan"],
)
def test_bytes_that_are_no_mark_are_passed_over(data: bytes):
    error = in_spark(f"[ARRAYSTORE_FORMAT] text <<arraystore:{mark_of(data)}>>")
    assert translate_error(error) is error


@pytest.mark.parametrize("text", ["<<arraystore:zz>>", "<<arraystore:abc>>", "<<arraystore:", "<<arraystore:ABCD>>"])
def test_text_that_is_no_mark_is_passed_over(text: str):
    error = in_spark(text)
    assert translate_error(error) is error


def test_a_mark_without_its_message_is_passed_over():
    error = in_spark(marked_text(SessionStateError("closed")).removeprefix("[ARRAYSTORE_SESSION_STATE]"))
    assert translate_error(error) is error


def test_the_message_is_in_the_text_once_and_the_mark_has_code_and_fields_alone():
    text = marked_text(MergeConflictError("two forks wrote a", "a", ((0, 1),)))
    assert text.count("two forks wrote a") == 1
    mark = re.search(r"<<arraystore:(.*)>>", text)
    assert mark is not None
    body = json.loads(base64.urlsafe_b64decode(mark[1]))
    assert body == {"code": "ARRAYSTORE_MERGE_CONFLICT", "fields": {"path": "a", "chunks": [[0, 1]]}}
    assert len(marked_text(InvalidInputError("x" * 2000))) < 2200


def test_a_damaged_mark_does_not_hide_a_good_one_before_it():
    text = marked_text(SessionStateError("closed")) + " <<arraystore:00>>"
    assert type(translate_error(in_spark(text))) is SessionStateError


def test_attributes_of_other_types_become_text():
    found = made_from({"code": "ARRAYSTORE_FORMAT", "fields": {"object_name": [1], "reason": {"a": 1}}})
    assert isinstance(found, FormatError)
    assert (found.object_name, found.reason, found.message) == ("[1]", "{'a': 1}", "text")


def test_marks_survive_what_spark_does_to_lines():
    """They are one word of letters and digits: nothing in them is quoted, wrapped, or taken for a format."""
    text = marked_text(InvalidInputError('"quoted" %s {0} $x\n\\n\t\u2028'))
    assert re.fullmatch(r"<<arraystore:[0-9A-Za-z_=-]+>>", text.rsplit(" ", 1)[1])
    assert str(translate_error(in_spark(text))) == '"quoted" %s {0} $x\n\\n\t\u2028'


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_the_package_imports_neither_pyspark_nor_pyarrow():
    code = (
        "import sys, arraystore.spark as s\n"
        "s.__all__; dir(s); s.SparkUnavailableError; s.translate_error; s.WriteReport\n"
        "print([name for name in ('pyspark', 'pyarrow', 'pandas', 'py4j', 'grpc') if name in sys.modules])"
    )
    assert run_python(code) == "[]"


def test_public_names_are_functions_and_classes_whatever_was_imported_before():
    """A function that has the name of its module is not hidden by it."""
    code = (
        "import importlib, pkgutil, types, arraystore.spark as s\n"
        "for each in pkgutil.walk_packages(s.__path__, 'arraystore.spark.'): importlib.import_module(each.name)\n"
        "from arraystore.spark import chunk_regions, write_regions\n"
        "print([name for name in s.__all__ if isinstance(getattr(s, name), types.ModuleType)], write_regions.__name__)"
    )
    assert run_python(code) == "[] write_regions"


def test_every_public_name_is_there_and_is_declared_for_type_checkers():
    import ast
    import importlib
    import inspect

    import arraystore.spark as package

    tree = ast.parse(inspect.getsource(package))
    (checking,) = [node for node in tree.body if isinstance(node, ast.If)]
    declared = {
        alias.name: str(node.module)
        for node in checking.orelse
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(package.__all__) == sorted(declared)
    for name, module in declared.items():
        assert getattr(package, name) is getattr(importlib.import_module(module), name)
    assert len(set(package.__all__)) == len(package.__all__)
    assert [name for name in package.__all__ if inspect.ismodule(getattr(package, name))] == []
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        package.nothing  # noqa: B018
