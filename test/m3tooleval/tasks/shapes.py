"""Tasks whose expected outputs are worked out by the tools themselves."""

from .base import Task, ToolType

SIDES = [3, 4, 5]


def area(width, height):
    return width * height


def largest(*values):
    return max(values)


def half(value):
    return area(value, 0.5)  # a tool within a tool is no call of a player's


TOOLS = {
    "area": ToolType("area", "The area of a rectangle.", area, "area(width: float, height: float) -> float"),
    "largest": ToolType("largest", "The largest of some values.", largest, "largest(*args: float) -> float"),
    "half": ToolType("half", "Half of a value.", half, "half(value: float) -> float"),
}


def of_squares(sides):
    return [area(side, side) for side in sides]


Task(
    name="shapes/largest",
    tools=TOOLS,
    instruction="What is the largest area of rectangles of 2 by 7, 3 by 5 and 4 by 4?",
    expected_output=largest(*[area(2, 7), area(3, 5), area(4, 4)]),
    is_single_tool_task=False,
)
Task(
    name="shapes/squares",
    tools=TOOLS,
    instruction="What are the areas of squares with the sides 3, 4 and 5? Answer with a list.",
    expected_output=of_squares(SIDES),
    is_single_tool_task=False,
)
Task(
    name="shapes/half",
    tools=TOOLS,
    instruction="What is half of 2.2? Answer in the format of 'xx.xx' (e.g., 12.34).",
    expected_output=half(2.2000000000000002),
    is_single_tool_task=False,
)
