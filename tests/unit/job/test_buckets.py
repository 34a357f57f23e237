"""Buckets fill Spark's partitions evenly."""

from collections import Counter

import pytest

from spark_job.buckets import bucket_values, shuffle_partition


def test_sparks_hash_of_an_integer_is_reproduced() -> None:
    # Spark SQL: SELECT pmod(hash(v), 200) for v = 0, 1, 2, 42, -1
    assert [shuffle_partition(v, 200) for v in (0, 1, 2, 42, -1)] == SPARK_PARTITIONS_OF_200


SPARK_PARTITIONS_OF_200 = [191, 43, 174, 173, 13]


@pytest.mark.parametrize(("buckets", "partitions"), [(2, 2), (8, 2), (8, 8), (96, 12)])
def test_every_shuffle_partition_gets_equally_many_buckets(buckets: int, partitions: int) -> None:
    values = bucket_values(buckets, partitions)
    assert len(set(values)) == buckets
    assert set(Counter(shuffle_partition(v, partitions) for v in values).values()) == {buckets // partitions}


def test_buckets_that_cannot_be_spread_evenly_are_refused() -> None:
    with pytest.raises(ValueError, match="5 buckets cannot be spread evenly over 2"):
        bucket_values(5, 2)
