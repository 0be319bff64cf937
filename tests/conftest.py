"""What all tests share: S3 servers, Hypothesis profiles, and a working directory outside the checkout."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import hypothesis.configuration
import pytest

import arraystore
from tests import s3server
from tests.java import QUICK_JAVA
from tests.s3server import S3Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

if sys.version_info < (3, 12):  # Icechunk 2 needs it
    collect_ignore = [
        "cli/test_hierarchies.py",
        "compat/test_icechunk_names.py",
        "compat/test_migration_page.py",
        "copying/test_icechunk.py",
        "copying/test_icechunk_history.py",
        "copying/test_icechunk_old.py",
        "spark/test_benchmark_routes.py",
        "test_readme.py",  # which compares with the benchmarks
    ]

_open_run = contextlib.ExitStack()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="search longer: more Hypothesis examples, seeds and rounds")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the one process that outlives the others of a run
        _open_run.enter_context(s3server.open_run())
    hypothesis.configuration.set_hypothesis_home_dir(Path(os.environ[s3server.RUN_DIRECTORY]) / "hypothesis")
    _load_hypothesis_profile(config)


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """Run one process more than there are processors: those with Spark, servers and naps wait most of the time."""
    return (yield) + 1


THOROUGH = (
    "tests/benchmarks/",
    "tests/commit/test_choices.py",
    "tests/commit/test_hierarchies.py",
    "tests/commit/test_histories.py",
    "tests/commit/test_intent_queue_failures.py",
    "tests/commit/test_matrix.py",
    "tests/commit/test_memory.py",
    "tests/commit/test_processes.py",
    "tests/commit/test_requests.py::test_after_ten_thousand_commits_everything_costs_what_it_did_after_a_hundred",
    "tests/commit/test_requests_of_lost_races.py",
    "tests/commit/test_sent_twice",
    "tests/forks/test_random_sessions.py",
    "tests/format/test_bound_objects.py",
    "tests/format/test_hostile.py",
    "tests/fuzz/",
    "tests/history/test_requests.py",
    "tests/integrations/test_dask.py::test_an_array_is_computed_from_another_of_the_same_session[processes]",
    "tests/integrations/test_direct_regions.py::test_dask_arrays_go_from_session_to_session[processes]",
    "tests/integrations/test_xarray.py::test_a_dataset_comes_back_whatever_computed_it[processes]",
    "tests/maintenance/test_checkpoints_and_folding.py",
    "tests/maintenance/test_compact_meanwhile.py",
    "tests/maintenance/test_histories.py",
    "tests/maintenance/verification/test_damage.py",
    "tests/maintenance/verification/test_lifecycles.py",
    "tests/maintenance/verification/test_rebuilding.py",
    "tests/maintenance/verification/test_repair.py::test_what_is_derived_from_the_logs_is_made_anew",
    "tests/repository/test_healing.py",
    "tests/session/test_hierarchies.py",
    "tests/session/test_processes.py::test_what_only_reads_travels_to_other_processes[spawn]",
    "tests/session/test_random_arrays.py",
    "tests/session/test_uncommitted.py::test_threads_read_what_they_wrote_while_others_write[memory]",
    "tests/session/test_uncommitted.py::test_threads_read_what_they_wrote_while_others_write[s3]",
    "tests/session/test_virtual.py::test_containers_travel_with_sessions_and_forks[spawn]",
    "tests/session/test_xarray.py::test_every_dask_block_writes_through_a_fork_of_its_own[processes]",
    "tests/session/test_zarr_state_machines.py",
    "tests/simulation/test_explore.py",
    "tests/simulation/test_mutations.py::test_simulation_notices_a_mutation",
    "tests/simulation/test_runs.py::test_all_solvers_isolations_and_outcomes_occur",
    "tests/simulation/test_runs.py::test_conflicts_of_many_kinds_occur",
    "tests/simulation/test_runs.py::test_every_chunk_is_written_with_bytes_of_its_own",
    "tests/simulation/test_runs.py::test_snapshots_are_flushed_undone_and_repeated_and_refused_for_reasons",
    "tests/simulation/test_runs.py::test_the_same_seed_is_the_same_run_in_another_interpreter",
    "tests/simulation/test_runs.py::test_what_once_failed_does_not",
    "tests/simulation/test_runs.py::test_writers_do_everything_that_they_can",
    "tests/spark/clusters/",
    "tests/spark/test_stream_recovery.py::test_a_storage_that_fails_at_any_request_leaves_the_batch_once_in_the_end",
    "tests/test_s3server.py::test_a_killed_run_leaves_no_server_behind",
    "tests/torture/test_torture.py",
)
"""What tries all pairs, orders or damages, searches at random, or takes processes of its own: not in the fast tier."""


SPARSE = (
    "tests/commit/test_acknowledgements.py::test_under_random_failures_what_is_acknowledged",
    "tests/commit/test_bases.py::test_a_base_that_is_no_record_of_the_log_is_refused",
    "tests/commit/test_errors_let_go.py::test_the_error_of_a_chunk_is_in_no_cycle",
    "tests/commit/test_serializable.py::test_declared_reads_take_the_place_of_noted_ones",
    "tests/commit/test_solvers.py::test_of_chunks_that_both_wrote_exactly_these_go_to_the_side_chosen",
    "tests/copying/test_zarr.py::test_what_is_imported_has_the_same_keys_and_bytes",
    "tests/forks/test_distributed.py::test_combined_changes_mean_what_they_meant_alone",
    "tests/history/test_cherry_pick.py::test_a_branch_gets_what_one_snapshot_of_another_changed",
    "tests/history/test_revert.py::test_the_revert_of_a_revert_is_the_change_again",
    "tests/history/test_revert.py::test_what_one_snapshot_changed_is_undone",
    "tests/ingest/test_end_to_end.py::test_a_source_of_any_format_arrives_unchanged",
    "tests/integrations/test_append_all_or_none.py::test_an_append_that_fails_leaves_the_session_as_it_was",
    "tests/integrations/test_dask.py::test_threads_may_write_to_any_storage",
    "tests/integrations/test_dask_processes.py::test_threads_write_to_stores_of_sessions_and_forks",
    "tests/integrations/test_dask_processes.py::test_writing_past_the_session_is_refused",
    "tests/integrations/test_kept_coordinates.py::test_another_coordinate_than_that_of_the_array_is_refused",
    "tests/integrations/test_value_limits.py::test_values_that_the_array_does_not_hold_are_not_appended",
    "tests/log/test_identity.py::test_whatever_a_late_session_does_a_new_repository_stays_as_it_is",
    "tests/maintenance/collection/test_trimming.py::test_whoever_comes_afresh_finds_the_newest_record",
    "tests/maintenance/test_compact_damaged.py::test_other_care_goes_on_past_a_damaged_pack",
    "tests/maintenance/verification/test_virtual.py::test_an_old_bad_reference_is_a_finding",
    "tests/session/test_checksums.py::test_no_value_is_read_from_a_damaged_pack",
    "tests/session/test_chunk_statistics.py::test_statistics_are_those_of_the_stored_values",
    "tests/session/test_keys.py::test_a_key_that_cannot_be_is_refused_when_set",
    "tests/session/test_packing.py::test_a_sequential_read_of_small_chunks_takes_few_requests",
    "tests/session/test_virtual_refusals.py::test_a_bad_reference_is_refused",
    "tests/session/test_virtual_refusals.py::test_without_a_look_at_containers",
    "tests/session/test_xarray.py::test_a_dataset_comes_back_as_it_was",
    "tests/session/test_xarray.py::test_dask_writes_through_a_store_shared_by_threads",
    "tests/simulation/test_runs.py::test_the_same_seed_is_the_same_run_event_for_event",
    "tests/test_public.py::test_dir_of_a_module_shows_its_public_names_and_nothing_else_before_and_after_they_are_used",
    "tests/transforms/test_coarsening.py::test_windows_are_reduced_as_numpy_does",
    "tests/transforms/test_rechunk.py::test_any_chunks_of_any_type_hold_the_same_values",
    "tests/transforms/test_reduction.py::test_statistics_are_those_of_numpy",
    "tests/transforms/test_transform.py::test_any_halo_at_any_edge_is_what_numpy_pads",
    "tests/transforms/test_wrong_results.py::test_partial_results_that_are_none_are_an_error",
    "tests/virtual/test_virtualize.py::test_a_file_of_any_name_is_the_one_that_is_parsed_and_read",
    "tests/virtual/test_virtualize.py::test_files_that_mean_something_else_are_not_joined",
    "tests/virtual/test_virtualize.py::test_what_is_no_dataset_is_not_committed",
)
"""Products of many parameters: the fast tier takes the first of each five."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what a tier leaves out as a whole."""
    name = collection_path.relative_to(config.rootpath).as_posix()
    if config.option.markexpr == "not thorough":
        return name in _THOROUGH_FILES or None
    if config.option.markexpr != "thorough" or not collection_path.match("test_*.py"):
        return None
    return not _has_thorough_tests(name, collection_path) or None


@functools.cache
def _has_thorough_tests(name: str, path: Path) -> bool:
    """Tell from names and text alone whether a file is imported in the thorough tier."""
    if name.startswith(_THOROUGH_PLACES):
        return True
    text = path.read_text()
    return any(word in text for word in _WORDS_OF_THOROUGH_FILES)


_THOROUGH_FILES = {name.rstrip("/") for name in THOROUGH if name.endswith(("/", ".py"))}
_THOROUGH_PLACES = tuple(name.partition("::")[0] for name in (*THOROUGH, *SPARSE))
_WORDS_OF_THOROUGH_FILES = ("spark", "thorough", "hypothesis")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep out of the fast tier what starts Spark, unless it touches a feature once from end to end.

    Tests with Spark come first: one process runs them all, while others run the rest.
    Searches of Hypothesis belong to both tiers: few examples in the fast one, all in the other.
    """
    thorough = config.option.markexpr == "thorough"
    seen = Counter[str]()
    for item in items:
        with_spark = item.get_closest_marker("spark") and not item.get_closest_marker("end_to_end")
        search = thorough and getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
        name = item.nodeid.partition("[")[0]
        repeats = name.startswith(SPARSE) and seen[name] % 5 > 0
        seen[name] += 1
        if with_spark or search or repeats or item.nodeid.startswith(THOROUGH):
            item.add_marker(pytest.mark.thorough)
        if item.get_closest_marker("thorough"):
            file = item.path.relative_to(config.rootpath).as_posix()
            assert _has_thorough_tests(file, item.path), f"no tier runs {item.nodeid}: name 'thorough' in its file"
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)


def pytest_collection_finish() -> None:
    """Leave what was collected out of each later garbage collection, which would take half a second otherwise."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        _open_run.close()


def pytest_report_header(config: pytest.Config) -> list[str]:
    minio = "found" if s3server.find_minio() else f"not found, its tests are skipped ({_HOW_TO_GET_MINIO})"
    return [f"S3 servers: SeaweedFS; MinIO {minio}"]


_HOW_TO_GET_MINIO = "put `minio` on PATH, name it in ARRAYSTORE_MINIO, or build it with ARRAYSTORE_BUILD_MINIO=1 and Go"


def _load_hypothesis_profile(config: pytest.Config) -> None:
    """Choose `ci`, the same examples in each run and few in the fast tier, unless asked for another profile."""
    common = {"deadline": None, "print_blob": True, "database": None}
    examples = 8 if config.option.markexpr == "not thorough" else 35
    hypothesis.settings.register_profile("ci", derandomize=True, max_examples=examples, **common)
    hypothesis.settings.register_profile("long", max_examples=2000, **common)
    default = "long" if config.getoption("--long") else "ci"
    hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", default))


@pytest.fixture(scope="session")
def long_run(pytestconfig: pytest.Config) -> bool:
    """Whether --long was given: tests with seeds or rounds of their own take more of them."""
    return bool(pytestconfig.getoption("--long"))


@pytest.fixture(scope="session", autouse=True)
def _outside_the_checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Work in a temporary directory, so that what a library drops into the current one stays out of the checkout."""
    with contextlib.chdir(tmp_path_factory.mktemp("cwd")):
        yield


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    """Leave no figure of matplotlib to the next test, which may count them."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture(scope="session")
def s3_server() -> S3Server:
    """The run's SeaweedFS server."""
    return s3server.shared_server(s3server.SEAWEEDFS)


@pytest.fixture(scope="session")
def minio_server() -> S3Server:
    """The run's MinIO server; where there is no MinIO the test is skipped, and the header of the run says so."""
    if s3server.find_minio() is None:
        pytest.skip(f"there is no MinIO: {_HOW_TO_GET_MINIO}")
    return s3server.shared_server(s3server.MINIO)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Spark, one for all tests of a process: two slots, and four attempts for each task, as on a cluster."""
    from arraystore.spark import start_session

    # Workers are processes of their own and must find the same arraystore, and the same tests, as this one.
    checkout = str(Path(arraystore.__file__).parents[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", checkout, prepend=os.pathsep)
        patch.setenv("JAVA_TOOL_OPTIONS", QUICK_JAVA)
        session = start_session("local[2,4]", name="arraystore tests")
        yield session
        session.stop()
