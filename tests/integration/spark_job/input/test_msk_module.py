"""MSK's login module beside Spark's jars: Kafka's client of this Spark loads it. What its brokers say of it, only MSK can tell."""

from importlib.resources import files
from pathlib import Path

import pyspark
from py4j.java_gateway import JavaGateway, java_import

from service.settings import KafkaSettings
from spark_job.spark.jars import java_executable, resolve, spark_connector_jars
from spark_job.stream.kafka_login import AWS


def test_kafkas_client_of_this_spark_makes_a_consumer_with_msks_module() -> None:
    sparks = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    msks = resolve(files("spark_job.spark") / "aws-msk-iam.lock")
    gateway = JavaGateway.launch_gateway(
        classpath=":".join(map(str, [*spark_connector_jars(), *sparks, *msks])),
        java_path=java_executable(),
        die_on_exit=True,
    )
    try:
        java_import(gateway.jvm, "org.apache.kafka.clients.consumer.KafkaConsumer")
        properties = gateway.jvm.java.util.Properties()
        text = "org.apache.kafka.common.serialization.StringDeserializer"
        own = {"bootstrap.servers": "127.0.0.1:1", "key.deserializer": text, "value.deserializer": text}
        for name, value in (own | KafkaSettings(login="aws-msk-iam").java(AWS)).items():
            properties.setProperty(name, value)
        consumer = gateway.jvm.KafkaConsumer(properties)
        consumer.close()
    finally:
        gateway.shutdown()
