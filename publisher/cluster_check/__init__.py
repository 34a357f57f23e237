"""`publisher check-cluster`: tests of a Kafka cluster on a scratch topic."""
