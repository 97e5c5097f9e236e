"""Reads the data of an explorer page."""

import json
import re
from typing import Any

TEXT = "the old house"
HOSTILE = "</script><!--"


def data_of(html: str, name: str = "data") -> Any:
    """The JSON that a page contains under this name."""
    (found,) = re.findall(rf'<script type="application/json" id="onehop-{name}">(.*?)</script>', html, re.DOTALL)
    return json.loads(found)
