"""A grouped horizontal bar chart as a self-contained SVG."""

from html import escape

WIDTH, LABEL, BAR, GAP, GROUP = 860, 190, 22, 4, 30
COLOURS = {"onrush": "#1f6f8b", "aquatic_udp": "#c46a2b", "floor": "#9aa5ab"}


def bars(title, groups):
    """`groups`: group name to bar name to value."""
    largest = max(value for group in groups.values() for value in group.values())
    scale = (WIDTH - LABEL - 90) / largest
    parts, y = [], 56
    for name, group in groups.items():
        parts.append(f'<text x="8" y="{y}" class="group">{escape(name)}</text>')
        y += 10
        for bar, value in group.items():
            parts.append(row(bar, value, y, scale))
            y += BAR + GAP
        y += GROUP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}" '
        f'role="img" aria-label="{escape(title)}">\n'
        "<style>text{font:14px system-ui,sans-serif;fill:#222}.group{font-weight:600}"
        ".title{font-size:17px;font-weight:600}</style>\n"
        f'<rect width="{WIDTH}" height="{y}" fill="#fff"/>\n'
        f'<text x="8" y="26" class="title">{escape(title)}</text>\n'
        + "\n".join(parts) + "\n</svg>\n")


def row(name, value, y, scale):
    """A bar with its name on the left and its value on the right."""
    colour = next(colour for known, colour in COLOURS.items() if name.startswith(known))
    faded = ' fill-opacity="0.6"' if "split" in name else ""
    width = value * scale
    return (
        f'<text x="{LABEL - 8}" y="{y + 16}" text-anchor="end">{escape(name)}</text>'
        f'<rect x="{LABEL}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{colour}"{faded}/>'
        f'<text x="{LABEL + width + 8:.1f}" y="{y + 16}">{value:.2f}</text>')
