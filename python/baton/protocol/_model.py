"""Records with the few methods of pydantic's models that routers use."""

from __future__ import annotations

import copy
import dataclasses
import json
from typing import Any


class Model:
    """Base of dataclasses."""

    def model_dump(self, *, exclude_none: bool = False, **_: Any) -> dict[str, Any]:
        """All fields by name; records inside become dictionaries too."""
        fields = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self))  # type: ignore[arg-type]
        return {name: _dumped(value) for name, value in fields if not (exclude_none and value is None)}

    def model_dump_json(self, **options: Any) -> str:
        return json.dumps(self.model_dump(**options))

    def model_copy(self, *, update: dict[str, Any] | None = None, deep: bool = False) -> Any:
        copied = copy.deepcopy(self) if deep else copy.copy(self)
        for name, value in (update or {}).items():
            setattr(copied, name, value)
        return copied

    @classmethod
    def model_validate(cls, data: Any) -> Any:
        """From a dictionary. What the record does not know is left out."""
        known = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
        return cls(**{name: value for name, value in data.items() if name in known})


def _dumped(value: Any) -> Any:
    if isinstance(value, Model):
        return value.model_dump()
    if isinstance(value, list) and any(isinstance(item, Model) for item in value):
        return [_dumped(item) for item in value]
    return value
