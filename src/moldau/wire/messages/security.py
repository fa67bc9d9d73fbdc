"""Authentication: SASL, SCRAM credentials, delegation tokens, and requests forwarded for a client."""

from __future__ import annotations

from moldau.wire.message import Request, Response
from moldau.wire.types import Bytes, Int8, Int16, Int32, Int64, String, Struct, field


class SaslHandshakeRequest(Request, key=17, versions="0-1"):
    """Choose a SASL mechanism."""

    mechanism: String


class SaslHandshakeResponse(Response, key=17, versions="0-1"):
    """Whether the mechanism is offered, and which ones are."""

    error_code: Int16
    mechanisms: list[String]


class SaslAuthenticateRequest(Request, key=36, versions="0-2", flexible="2+"):
    """A step of the SASL exchange by the client."""

    auth_bytes: Bytes


class SaslAuthenticateResponse(Response, key=36, versions="0-2", flexible="2+"):
    """A step of the SASL exchange by the server."""

    error_code: Int16
    error_message: String | None = field(nullable="0+")
    auth_bytes: Bytes
    session_lifetime_ms: Int64 = field("1+", default=0, ignorable=True)


class DescribeUserScramCredentialsRequest(Request, key=50, versions="0", flexible="0+"):
    """Ask which users have SCRAM credentials; null means all."""

    users: list[UserName] | None = field(nullable="0+")


class UserName(Struct):
    """A user to describe."""

    name: String


class DescribeUserScramCredentialsResponse(Response, key=50, versions="0", flexible="0+"):
    """The users and their credentials."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(nullable="0+")
    results: list[DescribeUserScramCredentialsResult]


class DescribeUserScramCredentialsResult(Struct):
    """The credentials of one user."""

    user: String
    error_code: Int16
    error_message: String | None = field(nullable="0+")
    credential_infos: list[CredentialInfo]


class CredentialInfo(Struct):
    """A mechanism and its number of iterations."""

    mechanism: Int8
    iterations: Int32


class AlterUserScramCredentialsRequest(Request, key=51, versions="0", flexible="0+"):
    """Set and delete SCRAM credentials."""

    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]


class ScramCredentialDeletion(Struct):
    """A credential to delete."""

    name: String
    mechanism: Int8


class ScramCredentialUpsertion(Struct):
    """A credential to add or replace."""

    name: String
    mechanism: Int8
    iterations: Int32
    salt: Bytes
    salted_password: Bytes


class AlterUserScramCredentialsResponse(Response, key=51, versions="0", flexible="0+"):
    """Which users were changed."""

    throttle_time_ms: Int32
    results: list[AlterUserScramCredentialsResult]


class AlterUserScramCredentialsResult(Struct):
    """The outcome for one user."""

    user: String
    error_code: Int16
    error_message: String | None = field(nullable="0+")


class CreateDelegationTokenRequest(Request, key=38, versions="1-3", flexible="2+"):
    """Create a delegation token."""

    owner_principal_type: String | None = field("3+", nullable="3+", default="")
    owner_principal_name: String | None = field("3+", nullable="3+", default="")
    renewers: list[CreatableRenewers]
    max_lifetime_ms: Int64


class CreatableRenewers(Struct):
    """A principal that may renew the token."""

    principal_type: String
    principal_name: String


class CreateDelegationTokenResponse(Response, key=38, versions="1-3", flexible="2+"):
    """The token and its secret."""

    error_code: Int16
    principal_type: String
    principal_name: String
    token_requester_principal_type: String = field("3+", default="")
    token_requester_principal_name: String = field("3+", default="")
    issue_timestamp_ms: Int64
    expiry_timestamp_ms: Int64
    max_timestamp_ms: Int64
    token_id: String
    hmac: Bytes
    throttle_time_ms: Int32


class RenewDelegationTokenRequest(Request, key=39, versions="1-2", flexible="2+"):
    """Extend the life of a delegation token."""

    hmac: Bytes
    renew_period_ms: Int64


class RenewDelegationTokenResponse(Response, key=39, versions="1-2", flexible="2+"):
    """When the token expires now."""

    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32


class ExpireDelegationTokenRequest(Request, key=40, versions="1-2", flexible="2+"):
    """Let a delegation token expire, at once or sooner than it would."""

    hmac: Bytes
    expiry_time_period_ms: Int64


class ExpireDelegationTokenResponse(Response, key=40, versions="1-2", flexible="2+"):
    """When the token expires now."""

    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32


class DescribeDelegationTokenRequest(Request, key=41, versions="1-3", flexible="2+"):
    """Ask for the delegation tokens of owners; null means all."""

    owners: list[DescribeDelegationTokenOwner] | None = field(nullable="0+")


class DescribeDelegationTokenOwner(Struct):
    """An owner of tokens."""

    principal_type: String
    principal_name: String


class DescribeDelegationTokenResponse(Response, key=41, versions="1-3", flexible="2+"):
    """The tokens that were found."""

    error_code: Int16
    tokens: list[DescribedDelegationToken]
    throttle_time_ms: Int32


class DescribedDelegationToken(Struct):
    """A token: its owner, its times, its secret and its renewers."""

    principal_type: String
    principal_name: String
    token_requester_principal_type: String = field("3+", default="")
    token_requester_principal_name: String = field("3+", default="")
    issue_timestamp: Int64
    expiry_timestamp: Int64
    max_timestamp: Int64
    token_id: String
    hmac: Bytes
    renewers: list[DescribedDelegationTokenRenewer]


class DescribedDelegationTokenRenewer(Struct):
    """A principal that may renew the token."""

    principal_type: String
    principal_name: String


class EnvelopeRequest(Request, key=58, versions="0", flexible="0+"):
    """A client's request that a broker forwards to the active controller."""

    request_data: Bytes
    request_principal: Bytes | None = field(nullable="0+")
    client_host_address: Bytes


class EnvelopeResponse(Response, key=58, versions="0", flexible="0+"):
    """The controller's reply, to be passed on to the client."""

    response_data: Bytes | None = field(nullable="0+", default=None)
    error_code: Int16
