"""Tasks at a site of five pages, one of which is named otherwise than the link to it."""

from types import SimpleNamespace

from .base import Task, ToolType

PAGES = [
    SimpleNamespace(name=name, content="\n".join(lines))
    for name, lines in {
        "/": ["Welcome.", "We make", "lamps,", "and", "shades.", "[Clickable '/products']", "[Clickable '/team']"],
        "/products": ["[Clickable '/products/lamp']"],
        "/products/lamp": ["[Clickable '/products/lamp/desk_lamp']"],
        "/products/lamp/desk_lamp": ["Item: Desk Lamp", "Price: $12.50"],
        "/team": ["[Clickable '/team/glass_works']"],
        "/team/glass-works": ["[Clickable '/team/glass_works/ann_lee']"],
        "/team/glass_works/ann_lee": ["Ann Lee of Glass Works Department", "Email: ann@lamps.example"],
    }.items()
]


class Browser:
    def __init__(self):
        self.pages, self.at, self.line = {page.name: page.content.split("\n") for page in PAGES}, "/", 0

    def view(self):
        lines = self.pages[self.at]
        return f"[Viewing page {self.line // 5 + 1} of {len(lines) // 5 + 1}]\n" + "\n".join(lines[self.line : self.line + 5])

    def click_url(self, url):
        if url not in self.pages:
            return "[URL not found.]"
        self.at, self.line = url, 0
        return self.view()

    def scroll_down(self):
        if self.line + 5 >= len(self.pages[self.at]):
            return "[Reached the bottom of the page.]\n"
        self.line += 5
        return self.view()


def create_tools():
    browser = Browser()
    return {
        "click_url": ToolType("click_url", "Opens what a link names.", browser.click_url, "click_url(url: str) -> str"),
        "scroll_down": ToolType("scroll_down", "Goes down.", browser.scroll_down, "scroll_down() -> str"),
        "view": ToolType("view", "What is seen.", browser.view, "view() -> str"),
    }


Task(
    name="web/price",
    tools=create_tools,
    instruction="Find the current price of Desk Lamp.\nAnswer in the format of 'xx.xx' (e.g., 12.34).\n",
    expected_output=12.5,
    is_single_tool_task=False,
)
Task(
    name="web/email",
    tools=create_tools,
    instruction="Find the email of Ann Lee.\n",
    expected_output="ann@lamps.example",
    is_single_tool_task=False,
)
