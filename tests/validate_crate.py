"""Validates an RO-Crate by roc-validator, in whose environment this runs; asks no network.

    python validate_crate.py CRATE PROFILE ADDRESS=FILE...

The JSON-LD contexts at these addresses are read from files. Prints what is required and not met;
ends with 1 if there is something.
"""

import email.message
import io
import sys
import urllib.request
import urllib.response
from pathlib import Path

import requests
from rocrate_validator import models, services  # type: ignore[import-not-found]

crate, profile, *given = sys.argv[1:]
FILES = dict(each.split("=", 1) for each in given)


class Contexts(urllib.request.BaseHandler):
    """For rdflib."""

    handler_order = 1

    def https_open(self, request: urllib.request.Request) -> urllib.response.addinfourl:
        headers = email.message.Message()
        headers["Content-Type"] = "application/ld+json"
        file = io.BytesIO(Path(FILES[request.full_url]).read_bytes())
        answer = urllib.response.addinfourl(file, headers, request.full_url, 200)
        answer.msg = "OK"  # type: ignore[attr-defined]
        return answer


def send(_: object, request: requests.PreparedRequest, **__: object) -> requests.Response:
    """For the validator's own checks."""
    answer = requests.Response()
    answer.status_code, answer.url, answer.request = 200, str(request.url), request
    answer.headers["Content-Type"] = "application/ld+json"
    answer._content = Path(FILES[str(request.url)]).read_bytes()
    return answer


urllib.request.install_opener(urllib.request.build_opener(Contexts))
setattr(requests.adapters.HTTPAdapter, "send", send)  # noqa: B010 - a method, to a type checker
asked = services.ValidationSettings(
    rocrate_uri=crate,
    profile_identifier=profile,
    requirement_severity=models.Severity.REQUIRED,
    no_cache=True,
)
found = [str(issue.message) for issue in services.validate(asked).get_issues()]
print("\n".join(found))
sys.exit(bool(found))
