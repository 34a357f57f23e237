"""Which buckets there are.

A key's bucket is computed by Spark in the JVM; the buckets' *values* are chosen here so that Spark's own hash of them fills every shuffle
partition equally. The lane is another, differently seeded murmur hash of the key's UTF-8 bytes (design §1): db/lanes.py.
"""

import mmh3

_SPARK_SEED = 42


def bucket_values(buckets: int, shuffle_partitions: int) -> list[int]:
    """Return `buckets` integers that Spark's hash partitioning spreads evenly over `shuffle_partitions`.

    Spark puts a row into partition pmod(murmur3_32(value, seed 42), partitions): `HashPartitioning` in its source.
    Raises ValueError unless `buckets` is a multiple of `shuffle_partitions`.
    """
    if buckets % shuffle_partitions:
        raise ValueError(
            f"{buckets} buckets cannot be spread evenly over {shuffle_partitions} shuffle partitions"
        )
    room = dict.fromkeys(range(shuffle_partitions), buckets // shuffle_partitions)
    values: list[int] = []
    candidate = 0
    while len(values) < buckets:
        partition = shuffle_partition(candidate, shuffle_partitions)
        if room[partition]:
            room[partition] -= 1
            values.append(candidate)
        candidate += 1
    return values


def shuffle_partition(value: int, shuffle_partitions: int) -> int:
    """Return the shuffle partition into which Spark puts the integer `value`."""
    return (
        int(mmh3.hash(value.to_bytes(4, "little", signed=True), _SPARK_SEED, signed=True))
        % shuffle_partitions
    )
