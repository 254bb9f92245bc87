"""What the stories have in common: a step is printed, and ends the story where its answer is not the right one."""

from pathlib import Path

import database
from stage import Trouble, eventually


class Story:
    def __init__(self, stage, page):
        self.stage = stage
        self.page = page

    def expect(self, who, what, answer, right, good=True):
        """Prints the step; ends the story where the answer is not the one that it should be."""
        shown = "(nil)" if answer is None else str(answer)
        self.page.step(who, what, shown, good)
        if not right(answer):
            raise Trouble(f"step {self.page.number} differs from what it should be: {what} answered {shown!r}")
        return answer

    def show_script(self, name, text):
        """A program that nobody changed; it stands in the stage's folder."""
        self.page.line(f"     {name}:  " + text.strip().replace("\n", "\n" + (len(name) + 8) * " "))
        (Path(self.stage.folder) / name).write_text(text)

    def eventually_in_postgres(self, what, sql, right):
        """What PostgreSQL answers, once that is right."""
        with database.Client(self.stage.postgres_port, user="postgres") as superuser:
            eventually(what, lambda: right(superuser.call(sql)))
            self.expect("in PostgreSQL", what, superuser.call(sql), right)

    def by_hand(self, *lines):
        """Each: a command, and what it means, so that the line as it stands can be given to a shell."""
        for command, meaning in lines:
            self.page.line(f"  {command:62}  {self.page.paint('2', '# ' + meaning)}")


def quoted(text):
    text = str(text)
    return f'"{text}"' if " " in text else text
