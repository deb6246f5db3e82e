"""Settings: one typed object with all defaults, and the durations in it. `setting_sources` reads it."""

import re
from typing import Annotated, Literal, get_args

import msgspec

from sandur.errors import BadRequest

LIFETIME_SECONDS_MAX = 3_600
"""The longest life of a token of a server."""

_DAY_SECONDS = 86_400
_DURATION = r"^P(?=[0-9T])(?:([0-9]{1,6})D)?(?:T(?=[0-9])(?:([0-9]{1,6})H)?(?:([0-9]{1,6})M)?(?:([0-9]{1,6})S)?)?\Z"

_PART_MAX = 999_999
"""The largest number in a duration."""

Natural = Annotated[int, msgspec.Meta(ge=1)]
Duration = Annotated[str, msgspec.Meta(pattern=_DURATION)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
OidcAlgorithm = Literal["RS256", "PS256", "ES256", "EdDSA"]


class S3Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Access to S3. Empty values come from the standard AWS environment variables."""

    endpoint: str = ""
    """URL of the S3 service. Set it for MinIO, SeaweedFS and other services that are not AWS."""
    region: str = ""
    """Region of the bucket."""
    path_style: bool = True
    """Send the bucket name in the path instead of in the host name."""
    access_key_id: str = ""
    """Access key."""
    secret_access_key: str = ""
    """Secret of the access key."""
    session_token: str = ""
    """Session token of temporary credentials."""
    access: Literal["none", "vend", "sign", "static"] = "none"
    """Access of clients to tables in the server's own bucket: none, temporary credentials (`vend`), requests that the
    server signs (`sign`), or the server's own keys (`static`), which open the whole bucket."""
    role_arn: str = ""
    """Role that temporary credentials are issued for. Each is confined to the locations of one table."""
    sts_endpoint: str = ""
    """URL of the service that issues temporary credentials. Empty means `s3.endpoint`, and without it AWS."""
    credential_lifetime: Duration = "PT1H"
    """How long a temporary credential is valid: 15 minutes to 12 hours."""


class GcsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Access to Google Cloud Storage. Without a token or a key file, Google's default credentials apply."""

    endpoint: str = ""
    """URL of the service. Empty means Google's own."""
    bearer_token: str = ""
    """OAuth token sent with every request."""
    service_account: str = ""
    """Path of a service account's key file. Needs the extra `sandur[gcs]`."""
    access: Literal["none", "vend"] = "none"
    """Access of clients to tables in the server's own bucket: none, or tokens that are confined to one table (`vend`).
    They are valid for as long as the server's own token, one hour."""
    sts_endpoint: str = ""
    """URL that exchanges the server's token for a confined one. Empty means Google's own."""


class AzureSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Access to Azure Blob Storage. Empty values come from the standard Azure environment variables."""

    endpoint: str = ""
    """URL of the service. Empty means the account's own host at Azure."""
    account_name: str = ""
    """Name of the storage account."""
    account_key: str = ""
    """Shared key of the account."""
    sas_token: str = ""
    """Shared access signature, used if there is no account key."""
    access: Literal["none", "vend"] = "none"
    """Access of clients to tables in the server's own container: none, or shared access signatures of the directory of
    one table (`vend`). They need `azure.hierarchical` and the account key."""
    hierarchical: bool = False
    """Whether the account has a hierarchical namespace. Without one, a signature would open the whole container, so
    none is given out. The server verifies it with the account."""
    credential_lifetime: Duration = "PT1H"
    """How long a shared access signature of `azure.access` is valid: 15 minutes to 12 hours."""


class RetrySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Retries of storage calls. The wait doubles after each try and has random jitter."""

    tries_max: Natural = 4
    """Tries per storage call, including the first."""
    first_wait_ms: Natural = 50
    """Wait after the first try."""
    wait_max_ms: Natural = 2_000
    """Longest wait between two tries."""
    retries_share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.2
    """Buckets only. Retries per successful storage call, on average. Without any left, a call is tried once."""
    retries_burst: Natural = 100
    """Buckets only. Retries that may be made at once, before they are earned by successes."""
    calls_at_once_max: Natural = 256
    """Buckets only. Storage calls per worker at the same time. A bucket that throttles gets fewer, until it stops."""
    second_reads_share: Annotated[float, msgspec.Meta(ge=0, le=0.05)] = 0.05
    """Buckets only. Fraction of conditional reads that get a second read when they are slow. 0 switches it off."""


class UnityCatalogSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The Unity Catalog API."""

    preview_index_enabled: bool = True
    """Answer lists from the list index. Without it, each list reads every listed object: slow, and always correct."""


class OidcSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An identity provider whose tokens are accepted (OpenID Connect). Each one is a table of its own: `[[oidc]]`."""

    issuer: str
    """The issuer, exactly as its tokens name it in `iss`. It needs https, except on loopback."""
    audience: str
    """The audience that its tokens must name in `aud`: usually the name of this server at the provider."""
    name: str = ""
    """Short name of the provider, used in the names of its users: `NAME~sub`. Empty: the host of the issuer."""
    tenant: str = "default"
    """Tenant of its tokens that have no tenant claim."""
    tenant_claim: str = ""
    """Claim that names the tenant. Empty: every token is for `tenant`."""
    workspace: str = ""
    """Workspace of its tokens. Empty: the header `X-Sandur-Workspace` chooses it."""
    groups_claim: str = ""
    """Claim that lists the groups of the user. Empty: its groups are those of this catalog only."""
    name_claim: str = ""
    """Claim that names the user, such as `email`. Empty: the name is the provider and the subject, `NAME~sub`."""
    algorithms: tuple[OidcAlgorithm, ...] = get_args(OidcAlgorithm)
    """Signature algorithms that are accepted from this provider."""
    token_lifetime_max: Duration = "P1D"  # noqa: S105 - a duration
    """Longest lifetime of its tokens. Tokens that are valid for longer are refused."""
    cli_client_id: str = ""
    """Client id of `sandur login` at this provider: a public client with the redirect `http://127.0.0.1/callback`."""
    cli_scopes: str = "openid offline_access"
    """Scopes that `sandur login` requests, separated by spaces. Its token must be for `audience`."""
    ui_client_id: str = ""
    """Client id of the web UI at this provider, with the redirect `https://HOST/ui/callback`. Empty: no login by it."""
    ui_client_secret: str = ""
    """Secret of that client. Empty: it is a public client, and PKCE alone protects the login."""
    ui_scopes: str = "openid offline_access"
    """Scopes that the web UI requests, separated by spaces. Its token must be for `audience`."""


class OpaSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A veto by Open Policy Agent on every request. It can refuse what the grants allow, and nothing else."""

    url: str = ""
    """URL of the decision, such as `http://127.0.0.1:8282/v1/data/sandur/allow`. Empty: no veto."""
    timeout: Duration = "PT2S"
    """How long to wait for a decision. Without one the request gets 503."""


class GrpcSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The gRPC services (docs/grpc.md), on a port of their own at the address `host`. They need `sandur[grpc]`."""

    port: Annotated[int, msgspec.Meta(ge=-1, le=65_535)] = -1
    """Port of the gRPC services. 0 takes a free one. -1: no such port."""
    certificate: str = ""
    """PEM file with the certificate of the server and those that signed it. Read again when it changes."""
    private_key: str = ""
    """PEM file with the key of the certificate."""
    client_ca: str = ""
    """PEM file with the certificates that sign those of clients. With it, every client needs a certificate (mTLS)."""
    allow_plaintext: bool = False
    """Allow gRPC without TLS on any address but loopback, behind a proxy that adds TLS."""
    connection_age: Duration = "PT5M"
    """Age at which a connection is closed, after its calls, so that clients spread over the workers again."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All settings with their defaults.

    The text below each field is its description in docs/settings.md (`python -m checks.settings_reference`).
    """

    store: str = "./sandur-data"
    """Where the catalog lives: a folder, `file://…`, `s3://bucket/prefix`, `gs://…`, `az://…` or `memory:`."""
    fsync: Literal["always", "never"] = "always"
    """Folders only. `always`: a write is on the disk before it is acknowledged. `never`: a power cut can lose it."""
    host: str = "127.0.0.1"
    """Address to listen on. Any address but loopback needs authentication or `allow_unauthenticated`."""
    port: Port = 8181
    """Port to listen on. 0 takes a free one."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names of this server, in the `Host` that proxies send and the `Origin` that browsers send."""
    metrics_port: Port = 0
    """Port that serves `/metrics`, `/healthz` and `/readyz` without a token, and nothing else. 0: no such port."""
    metrics_host: str = "127.0.0.1"
    """Address of the metrics port."""
    metrics_tables: tuple[str, ...] = ()
    """Tables with metrics of their own, by full name, such as `main.sales.orders`; at most 200. In the environment:
    separated by commas."""
    workers: Natural = 1
    """Server processes."""
    default_catalog: str = "main"
    """Catalog that is created in an empty store, and used by clients that name none."""
    allowed_locations: tuple[str, ...] = ()
    """Further roots, besides the store, where tables may lie. In the environment: separated by commas."""
    commit_attempts_max: Natural = 32
    """Attempts per commit before the client gets a conflict or a request to retry."""
    transaction_timeout_ms: Natural = 10_000
    """Age at which other requests may abort a transaction that is still undecided."""
    claim_timeout_ms: Natural = 600_000
    """Age at which a retry may take over the idempotency key of a request that never finished."""
    idempotency_key_lifetime: Duration = "PT1H"
    """How long an idempotency key is remembered. Its records are kept for one more day."""
    stage_create: bool = True
    """Allow staged table creation (`stage-create`)."""
    delta_unpublished_max: Natural = 10
    """Commits of one Delta table that may wait to be published to its `_delta_log`. More are refused with 429."""
    delta_waive_deletion_vectors: bool = False
    """Allow managed Delta tables for Iceberg readers (`delta.enableIcebergCompatV2`) without deletion vectors."""
    stage_ttl: Duration = "PT72H"
    """How long a staged table waits for its commit. After that, it and the files written for it are removed."""
    name_retention: Duration = "P1D"
    """How long the record of a dropped name is kept. Must exceed the longest request."""
    orphan_retention: Duration = "P1D"
    """Age at which a table whose creation never finished counts as abandoned."""
    receipt_retention: Duration = "P90D"
    """Minimum age of receipts before the janitors or the pipeline may remove them."""
    feed_reader_retention: Duration = "P30D"
    """How long the feed waits for a registered reader that was not seen any more."""
    report_retention: Duration = "P30D"
    """How long scan and commit reports of engines are kept."""
    audit: Literal["auto", "off", "changes", "all"] = "auto"
    """What the audit trail records: `changes` with denials, or `all`. `auto`: `all` with authentication, else `off`."""
    audit_reads_sampled: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    """Fraction of allowed reads that the audit trail records. Denials and changes are always recorded."""
    audit_retention: Duration = "P90D"
    """How long days of the audit trail are kept."""
    lineage_retention: Duration = "P30D"
    """How long lineage events are kept after they were published, and runs can still change."""
    lineage_run_retention: Duration = "P365D"
    """How long `system.lineage_runs` keeps a run after its last event. Edges are kept for good."""
    purge_delay: Duration = "PT10M"
    """How long the files of a table are kept after a drop with purge."""
    janitors: bool = True
    """Run the janitors in this server."""
    janitor_interval: Duration = "PT15M"
    """Time between two janitor runs over a workspace."""
    janitor_objects_max: Natural = 10_000
    """Objects that each janitor examines per run. The next run continues there."""
    janitor_garbage: bool = True
    """Let the janitors delete metadata files and receipts that nothing needs. Large workspaces need the pipeline."""
    plan_ttl: Duration = "PT10M"
    """How long a scan plan and its tasks can be fetched; at least one minute."""
    plan_wait: Duration = "PT10S"
    """How long a scan planning request waits for its plan before it answers `submitted`."""
    plan_inline_files_max: Natural = 1_000
    """Files that a scan planning answer contains itself. Further files are in plan tasks."""
    plan_task_files: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 128
    """Manifest entries per plan task, unless that makes more than 250 tasks."""
    plan_cache_bytes_max: Natural = 256 << 20
    """Memory for decoded manifests, per worker and workspace."""
    cache_bytes_max: Natural = 512 << 20
    """Bytes of table metadata, lists and indexes that are cached, per worker and workspace."""
    cache_records_max: Natural = 20_000
    """Names, pointers and other small records that are cached, per worker and workspace."""
    published_cache_bytes_max: Natural = 512 << 20
    """Bytes of published datasets that are cached for the UI and the API, per worker and workspace."""
    iceberg_events: bool = False
    """Serve events in the form that is proposed for Iceberg's REST API (`POST /v1/{prefix}/events`). The proposal may
    change, so the endpoint is not advertised. Sandur's own API always serves events."""
    event_streams_max: Natural = 100
    """Streams of events per worker and workspace at the same time. More are refused with 503."""
    deliveries: bool = True
    """Deliver events to subscriptions from this server."""
    delivery_lease: Duration = "PT1M"
    """How long a server that delivers to a subscription may be silent before another one takes over."""
    delivery_addresses: tuple[str, ...] = ()
    """Private networks that subscriptions may deliver to, such as `10.1.0.0/16`, also without https. All other private,
    loopback and link-local addresses are refused. In the environment: separated by commas."""
    tenant: str = ""
    """Tenant of every request. Empty: the token or the header `X-Sandur-Tenant` says it."""
    workspace: str = ""
    """Workspace of every request. Empty: the token or the header `X-Sandur-Workspace` says it."""
    authentication: Literal["off", "on"] = "off"
    """`on`: every request needs a token or an API key, and does what its principal may do. `off`: all is allowed."""
    preview: Literal["off", "rows", "sql"] = "rows"
    """Rows of tables for people, read by DuckDB (`sandur[preview]`): none, the first rows, or any SELECT. Without
    authentication, only on a server that no other machine can reach."""
    preview_timeout: Duration = "PT10S"
    """How long a preview or a query may run until its process is killed."""
    admin_secret: str = ""
    """First secret of the principal `admin`, for a store that has none yet. Empty: it is generated and printed once."""
    token_lifetime: Duration = "PT1H"  # noqa: S105 - a duration
    """How long a token of this server is valid; at most one hour."""
    sealing_keys: tuple[str, ...] = ()
    """Keys that seal the secrets of storage credentials (`sandur admin sealing-key`). The first one seals, all of them
    open. In the environment: separated by commas."""
    allow_unauthenticated: bool = False
    """Allow a server without authentication to listen on any address."""
    request_bytes_max: Natural = 32 << 20
    """Largest request body."""
    request_depth_max: Annotated[int, msgspec.Meta(ge=1, le=500)] = 200
    """Deepest nesting of a JSON request body."""
    bodies_bytes_max: Natural = 256 << 20
    """Bytes of request bodies that a worker holds at the same time. More are refused with 503."""
    requests_at_once_max: Natural = 512
    """Requests per worker at the same time. More are refused with 503. When more than half of them are in use, one
    principal gets at most a quarter; its further requests are refused with 429."""
    connections_max: Natural = 8_192
    """Connections per worker; fewer if the operating system allows fewer open files. Further ones get 503, except for
    `/healthz`, `/readyz` and `/metrics`."""
    shutdown_timeout: Duration = "PT30S"
    """How long a stopping server waits for requests and background work."""
    log_format: Literal["text", "json"] = "text"
    """Format of log lines."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is logged. Requests are logged at `info`."""
    log_reads_sampled: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    """Fraction of successful reads that are logged. Changes, refusals and failures are always logged."""
    slow_request_ms: Annotated[int, msgspec.Meta(ge=0)] = 1_000
    """Requests that take longer are logged at the level `warning`, with their storage calls. 0: none."""
    traces_endpoint: str = ""
    """URL of a collector of traces (OTLP over HTTP), such as `http://127.0.0.1:4318/v1/traces`. Needs `sandur[otel]`.
    Empty: no traces."""
    traces_sampled: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.01
    """Fraction of requests that are traced, of those whose client does not decide by `traceparent`."""
    oidc: tuple[OidcSettings, ...] = ()
    """Identity providers, one table `[[oidc]]` for each; see below. In the environment: a JSON list of them."""
    s3: S3Settings = S3Settings()
    gcs: GcsSettings = GcsSettings()
    azure: AzureSettings = AzureSettings()
    retry: RetrySettings = RetrySettings()
    unity_catalog: UnityCatalogSettings = UnityCatalogSettings()
    opa: OpaSettings = OpaSettings()
    grpc: GrpcSettings = GrpcSettings()


def seconds_of(duration: str) -> int:
    """The length of an ISO-8601 duration. Raises BadRequest if the text is not one."""
    parts = re.match(_DURATION, duration)
    if not parts:
        raise BadRequest(f"duration {duration!r}: expected ISO-8601 such as PT1H or P1DT12H")
    days, hours, minutes, seconds = (int(part or 0) for part in parts.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def duration_of(seconds: int) -> str:
    """An ISO-8601 duration of at least so many seconds: whole days if there are many, and at most the longest one."""
    return f"PT{seconds}S" if seconds <= _PART_MAX else f"P{min(-(-seconds // _DAY_SECONDS), _PART_MAX)}D"
