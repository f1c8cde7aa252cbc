"""Prints pip's index and certificate settings as shell exports for uv, which does not read them.

What is already set for uv wins. The values may hold credentials: the caller evaluates them and shows nothing.
"""

import ast
import os
import shlex
import subprocess
import sys

UV_NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "cert": "SSL_CERT_FILE",
}


def pip_settings() -> dict:
    """Settings for `pip install` by name; environment variables win over files, as in pip."""
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True
    ).stdout
    found: dict = {}
    for section in ("global", "install", ":env:"):
        for line in listing.splitlines():
            name, equals, value = line.partition("=")
            if equals and name.startswith(section + "."):
                found[name[len(section) + 1 :]] = ast.literal_eval(value)
    return found


for pip_name, value in pip_settings().items():
    uv_name = UV_NAMES.get(pip_name)
    if uv_name and uv_name not in os.environ:
        print(f"export {uv_name}={shlex.quote(' '.join(value.split()))}")
