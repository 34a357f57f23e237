"""A container engine, Compose and base images for tests on machines that cannot pull images. See tests/containers/README.md."""
