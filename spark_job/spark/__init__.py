"""Spark itself: its session, its jars and its JVM.

- lazy_session.py: starts Spark beside the job's start, and replaces it after a failure.
- session.py, parallelism.py: the session's settings; how many tasks run at once.
- jvm.py, jvm_environment.py, class_archive.py: the JVM's process, environment and class archive.
- start_failure.py: why the JVM did not start.
- jars.py, ivy.py: Kafka's connector, resolved and verified.
- shipping.py, task_secrets.py: how code, and options with passwords, reach a task. executor_in_a_pod.py: starts an executor on Kubernetes.
- result_server.py: how results reach this process.
- work_folder.py: temporary files, sockets and checkpoints.
"""
