"""What the exporters need beside this project, and in which versions they were tried."""

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from susurrus.models.errors import SusurrusError

EXTRA = "export"
"""The extra of pyproject.toml that installs it."""

TRIED: Mapping[str, str] = {
    "accelerate": ">=1.15,<2",
    "optimum-onnx": ">=0.1,<0.2",
    "torch": ">=2.13,<2.15",
    "transformers": ">=4.57,<4.58",
}
"""Distribution to versions, as pyproject.toml has them. The exporters reach into one another's internals, and other
versions write graphs of other sizes, or such as do not run."""


class ExtraError(SusurrusError):
    """A package of an extra is missing, or of a version that was not tried."""


def check_versions() -> None:
    """Look at the installed versions; nothing is imported.

    Raises:
        ExtraError: A package is missing, or of a version that was not tried.
    """
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415  # not needed by anything else

    fix = f'pip install -e ".[{EXTRA}]"'
    for name, wanted in TRIED.items():
        try:
            found = version(name)
        except PackageNotFoundError as error:
            raise ExtraError(f"{name} is not installed, and exporting needs it: {fix}") from error
        if not SpecifierSet(wanted).contains(found, prereleases=True):
            raise ExtraError(f"{name} {found} has not been tried with this exporter (wanted {wanted}): {fix}")
