"""Types of the compiled decoder; what a program means stands in `compiler`."""

from moldau.wire.compiler import Buffer, StructProgram
from moldau.wire.types import Struct

class Decoder:
    def __init__(self, program: StructProgram, label: str, elements_max: int) -> None: ...
    def __call__(self, buffer: Buffer, position: int, end: int, /) -> tuple[Struct, int]: ...
