"""A principal as a broker hands it on to the controller."""

from __future__ import annotations

from moldau.wire.message import Data
from moldau.wire.types import Bool, String


class DefaultPrincipalData(Data, versions="0", flexible="0+"):
    """A principal by type and name."""

    type: String
    name: String
    token_authenticated: Bool
