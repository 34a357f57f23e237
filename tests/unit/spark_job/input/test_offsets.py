"""Offsets: the positions that survive every restart."""

from spark_job.input.offsets import Offsets, TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_json_round_trip_keeps_every_partition() -> None:
    offsets = Offsets({B0: 3, A1: 0, A0: 7})
    assert offsets.to_json() == {"a": {"0": 7, "1": 0}, "b": {"0": 3}}
    assert Offsets.from_json(offsets.to_json()) == offsets


def test_a_partition_that_is_not_named_counts_as_zero() -> None:
    assert Offsets({A0: 1}).at(B0) == 0
    assert Offsets({A0: 0, A1: 1}).differences(Offsets()) == "a/1: 1 != 0"


def test_max_takes_the_greater_of_each_partition_of_either() -> None:
    assert Offsets({A0: 5, A1: 1}).max(Offsets({A0: 3, B0: 9})) == Offsets({A0: 5, A1: 1, B0: 9})


def test_differences_name_the_partition_and_both_values() -> None:
    assert Offsets({A0: 5, A1: 1}).differences(Offsets({A0: 6, A1: 1})) == "a/0: 5 != 6"
