"""PyYAML's SafeLoader with the scalars of JSON only, without limits. Our reader is compared with it."""

from collections.abc import Iterator
from typing import Any, ClassVar

import yaml

from knative_gateway.resources.documents.yaml_documents import YamlError, plain

_TAG = "tag:yaml.org,2002:"
_NAMES = {"NoneType": "null", "bool": "bool", "int": "int", "float": "float", "str": "str"}


class Loader(yaml.SafeLoader):
    """A loader with PyYAML's composer and constructor, and our rules for scalars."""

    yaml_constructors: ClassVar[dict[Any, Any]] = {}

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        if kind is not yaml.ScalarNode:
            return super().resolve(kind, value, implicit)
        if not implicit[0]:
            return f"{_TAG}str"
        try:
            return f"{_TAG}merge" if value == "<<" else _TAG + _NAMES[type(plain(value)).__name__]
        except YamlError:
            return f"{_TAG}float"

    def scalar(self, node: yaml.ScalarNode) -> object:
        value = plain(self.construct_scalar(node))
        name = _NAMES[type(value).__name__]
        if node.tag not in {_TAG + name, f"{_TAG}float" if name == "int" else ""} or name == "str":
            raise yaml.constructor.ConstructorError(None, None, "the tag does not fit")
        return value

    def mapping(self, node: yaml.MappingNode) -> Iterator[object]:
        value: dict[str, object] = {}
        yield value
        self.flatten_mapping(node)
        for key, member in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key is not a text")
            value[key.value] = self.construct_object(member)


Loader.yaml_constructors.update({_TAG + name: Loader.scalar for name in ("null", "bool", "int", "float")})
Loader.yaml_constructors.update(
    {
        f"{_TAG}str": yaml.SafeLoader.construct_yaml_str,
        f"{_TAG}merge": yaml.SafeLoader.construct_yaml_str,
        f"{_TAG}seq": yaml.SafeLoader.construct_yaml_seq,
        f"{_TAG}map": Loader.mapping,
        None: yaml.SafeLoader.construct_undefined,
    }
)
