"""Why a bucket cannot be used, in one line: the errors of obstore and the answers of servers, in words to act on."""

import re
from typing import Final, Literal

import httpx

Cloud = Literal["s3", "gs", "az"]

REASON_CHARACTERS_MAX: Final = 300

_DEBUG: Final = "\n\nDebug source:"
"""obstore appends Rust's debug output behind this line."""

_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]*)</Message>")
_STATUS: Final = re.compile(r"status code: ([1-5][0-9]{2} [A-Za-z -]+)")
_ADDRESS: Final = re.compile(r"Error performing [A-Z]+ ([a-z]+://[^/?\s]+)")
_CAUSE: Final = re.compile(r'(?:message|error): "([^"]+)"')
_METADATA_SERVICE: Final = "http://169.254.169.254"
_NO_BUCKET: Final = frozenset({"NoSuchBucket", "ContainerNotFound"})
_THROTTLED: Final = frozenset({"SlowDown", "SlowDownRead", "SlowDownWrite", "ServerBusy", "TooManyRequests"})
_WRONG_KEYS: Final = frozenset({"InvalidAccessKeyId", "SignatureDoesNotMatch", "AuthenticationFailed", "InvalidToken"})


# The settings that a person has to correct: the keys and the endpoint.
_SETTINGS: Final = {
    "s3": ("s3.access_key_id and s3.secret_access_key (or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)", "s3.endpoint"),
    "gs": ("gcs.bearer_token or gcs.service_account", "gcs.endpoint"),
    "az": ("azure.account_name and azure.account_key", "azure.endpoint"),
}


def names_no_bucket(error: object) -> bool:
    """Whether the server says that the bucket itself is missing, and not only an object in it."""
    code = _CODE.search(str(error))
    return code is not None and code[1] in _NO_BUCKET


def is_throttled(error: object) -> bool:
    """Whether the server asks for fewer requests."""
    text = str(error).partition(_DEBUG)[0]
    code, status = _CODE.search(text), _STATUS.search(text)
    return (code is not None and code[1] in _THROTTLED) or (status is not None and status[1][:3] in {"429", "503"})


def explain(error: object, cloud: Cloud) -> str:
    """The reason of a failure, in one line of bounded length, with the setting to check."""
    text, _, details = str(error).partition(_DEBUG)
    keys, endpoint = _SETTINGS[cloud]
    code, message, status, address = (
        found[1] if (found := pattern.search(text)) else "" for pattern in (_CODE, _MESSAGE, _STATUS, _ADDRESS)
    )
    answer = f"{message or status}{f' ({code})' if code else ''}"
    if address == _METADATA_SERVICE:
        reason = f"no keys were found: set {keys}"
    elif code in _NO_BUCKET:
        reason = f"the bucket does not exist ({code}): create it, or correct the address of the store"
    elif code in _WRONG_KEYS or status.startswith("401"):
        reason = f"the keys are wrong: {answer}: check {keys}"
    elif status.startswith("403"):
        reason = f"access denied: {answer}: check the keys and their permissions ({keys})"
    elif status:
        reason = answer
    elif address:
        reason = f"{address} cannot be reached: {_connection_problem(address, details)}: check {endpoint}"
    else:
        reason = text
    return " ".join(reason.split())[:REASON_CHARACTERS_MAX]


def explain_answer(answer: httpx.Response, cloud: Cloud) -> str:
    """The reason in an answer that is not a success."""
    return explain(f"status code: {answer.status_code} {answer.reason_phrase}\n{answer.text}", cloud)


def _connection_problem(address: str, details: str) -> str:
    if causes := _CAUSE.findall(details):
        return str(causes[-1])
    if "TimedOut" in details or "Timeout" in details:
        return "it did not answer in time"
    return "no TLS connection" if address.startswith("https:") else "no HTTP connection"
