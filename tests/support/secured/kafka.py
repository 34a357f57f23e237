"""A broker that wants TLS, a password and rights: SASL_SSL with SCRAM over a certificate authority of its own, and ACLs."""

import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from devstack.kafka import QUICK, Kafka
from devstack.processes.port import LOOPBACK, ReservedPort
from spark_job.spark.jars import java_executable
from tests.support.secured.authority import Authority
from tests.support.waiting import wait_until

USER = "publisher"
PASSWORD = "right-horse-battery"


class SecuredKafka:
    """`bootstrap_servers` lets tests in as they are; `guarded_servers` is for those who have the password."""

    def __init__(
        self, directory: Path, tokens: Mapping[str, str] | None = None, reauthenticate_ms: int = 0
    ) -> None:
        """`tokens`: what the guarded listener needs to take OAUTHBEARER as well, its settings by name. `reauthenticate_ms`: how long a
        connection lives without proving its password again; 0: for ever.
        """
        self._guarded, self._controller = ReservedPort(), ReservedPort()
        settings = {"super.users": "User:ANONYMOUS"}
        self.kafka = Kafka(directory / "kafka", fast=True, settings=settings)
        self._directory = directory
        store = directory / "server.pem"
        self.authority = directory / "authority" / "ca.pem"
        """The file by which clients know it."""
        self.certify()
        self.secured_servers = f"{LOOPBACK}:{self._guarded.number}"
        listeners = f"PLAINTEXT://{self.kafka.bootstrap_servers},GUARDED://{self.secured_servers}"
        settings |= {
            "listeners": f"{listeners},CONTROLLER://{LOOPBACK}:{self._controller.number}",
            "advertised.listeners": listeners,
            "controller.quorum.voters": f"1@{LOOPBACK}:{self._controller.number}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,GUARDED:SASL_SSL,CONTROLLER:PLAINTEXT",
            "listener.name.guarded.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.guarded.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
            "listener.name.guarded.ssl.keystore.type": "PEM",
            "listener.name.guarded.ssl.keystore.location": str(store),
            "listener.name.guarded.connections.max.reauth.ms": str(reauthenticate_ms),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        }
        if tokens is not None:
            settings["listener.name.guarded.sasl.enabled.mechanisms"] += ",OAUTHBEARER"
            settings |= {f"listener.name.guarded.oauthbearer.{name}": value for name, value in tokens.items()}

    @property
    def bootstrap_servers(self) -> str:
        """Without TLS, password and limits."""
        return self.kafka.bootstrap_servers

    def start(self) -> None:
        """Start it, and make the user."""
        self.kafka.start()
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        self.add_user(USER, PASSWORD)

    def add_user(self, name: str, password: str) -> None:
        """Make a user without rights, or change the password of one."""
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4_096)
        made = UserScramCredentialUpsertion(name, credential, password.encode())
        self._admin.alter_user_scram_credentials([made])[name].result(30)

    def certify(self) -> None:
        """Give it a new certificate of a new authority; a broker that runs has it after its next start."""
        authority = Authority(self._directory / "authority")
        key, certificate = authority.issue("broker")
        (self._directory / "server.pem").write_bytes(key.read_bytes() + certificate.read_bytes())

    def destroy(self) -> None:
        """Kill it and give its ports back."""
        self.kafka.destroy()
        self._guarded.close()
        self._controller.close()

    def run_tool(self, name: str, *words: str) -> None:
        """Run one of Kafka's own command line tools, by its class."""
        command = [
            QUICK,
            *self.kafka.java_options(),
            name,
            "--bootstrap-server",
            self.bootstrap_servers,
            *words,
        ]
        subprocess.run([java_executable(), *command], check=True, capture_output=True)

    def options(self, **changed: Any) -> dict[str, Any]:
        """librdkafka's options of the guarded listener, without the password."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
        } | changed

    def allow(self, *acls: AclBinding) -> None:
        """Grant rights."""
        asked = self._admin.create_acls(list(acls))
        for future in asked.values():
            future.result(30)
        # The controller has them; the broker learns of them a moment later.
        for acl in acls:
            wait_until(partial(self._shows, acl, True), f"{acl}")

    def revoke(self, *acls: AclBinding) -> None:
        """Take rights away."""
        asked = self._admin.delete_acls([_filter(acl) for acl in acls])
        for future in asked.values():
            assert future.result(30), "no such right"
        for acl in acls:
            wait_until(partial(self._shows, acl, False), f"{acl} to be gone")

    def _shows(self, acl: AclBinding, wanted: bool) -> bool:
        return bool(self._admin.describe_acls(_filter(acl)).result(30)) is wanted


def right(kind: str, name: str, operation: str, *, prefix: bool = False, user: str = USER) -> AclBinding:
    """A right of a user: on a `kind` (topic, group, transactional_id), on all names that begin so where `prefix`."""
    pattern = ResourcePatternType.PREFIXED if prefix else ResourcePatternType.LITERAL
    allowed = AclPermissionType.ALLOW
    return AclBinding(
        ResourceType[kind.upper()],
        name,
        pattern,
        f"User:{user}",
        "*",
        AclOperation[operation.upper()],
        allowed,
    )


def _filter(acl: AclBinding) -> Any:
    from confluent_kafka.admin import AclBindingFilter  # type: ignore[attr-defined]

    return AclBindingFilter(
        acl.restype,
        acl.name,
        acl.resource_pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )
