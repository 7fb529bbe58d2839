"""One HTML page for a run: text, figures and tables in one file that needs no network."""

import base64
import html

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 74em; margin: 1em auto; padding: 0 1em; box-sizing: border-box; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; }
/* A figure is on a laptop's screen of 1366 x 768 as a whole, between the browser's bars. */
img { max-width: 100%; max-height: 620px; width: auto; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: 0.25em 0.7em; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap; }
th { border-bottom: 2px solid #888; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; }
.note { color: #555; font-size: 13px; }
"""


class Page:
    """Grows part by part; all text is escaped."""

    def __init__(self, title):
        self._title = title
        self._parts = [f"<h1>{html.escape(title)}</h1>"]

    def heading(self, text):
        self._parts.append(f"<h2>{html.escape(text)}</h2>")

    def text(self, text, note=False):
        for paragraph in text.strip().split("\n\n"):
            kind = ' class="note"' if note else ""
            self._parts.append(f"<p{kind}>{html.escape(paragraph)}</p>")

    def image(self, png_path, alternative):
        with open(png_path, "rb") as file:
            data = base64.b64encode(file.read()).decode()
        self._parts.append(
            f'<p><img alt="{html.escape(alternative, quote=True)}" src="data:image/png;base64,{data}"></p>')

    def table(self, header, rows):
        def line(cells, tag):
            return "<tr>" + "".join(f"<{tag}>{html.escape(str(c))}</{tag}>" for c in cells) + "</tr>"

        body = "\n".join(line(row, "td") for row in rows)
        self._parts.append(
            f'<div class="wide"><table>\n{line(header, "th")}\n{body}\n</table></div>')

    def save(self, path):
        with open(path, "w", encoding="utf-8") as file:
            file.write("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                       f"<title>{html.escape(self._title)}</title>\n<style>{_STYLE}</style></head>\n<body>\n"
                       + "\n".join(self._parts) + "\n</body></html>\n")
