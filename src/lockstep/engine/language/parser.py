"""Tokens to a tree: operators by precedence, and the short programs that initializers and fields may be."""

from __future__ import annotations

from collections.abc import Iterable

from lockstep.engine.events.schema import FieldType
from lockstep.engine.language.builtins import matching
from lockstep.engine.language.faults import Misfit, fault
from lockstep.engine.language.syntax import (
    FIND_FIRST,
    MAX_INTEGER,
    Assign,
    Bare,
    Binary,
    Call,
    Choice,
    Declare,
    Group,
    Index,
    Literal,
    Name,
    Node,
    Repeat,
    Return,
    Statement,
    Token,
    Unary,
    When,
    tokens,
)

MAX_NESTING = 100
MAX_HEIGHT = 200
_MAX_OPEN = 250
"""Operators that wait for their right side, all levels together: bounds what the parser itself stacks up."""

_COMPARISON = 5
_UNARY = 9
_POWER = 10
_BINARY = {
    "or": (1, "or"),
    "||": (1, "or"),
    "xor": (2, "xor"),
    "and": (3, "and"),
    "&&": (3, "and"),
    "==": (_COMPARISON, "=="),
    "=": (_COMPARISON, "=="),
    "!=": (_COMPARISON, "!="),
    "<>": (_COMPARISON, "!="),
    "^=": (_COMPARISON, "!="),
    "<": (_COMPARISON, "<"),
    "<=": (_COMPARISON, "<="),
    ">": (_COMPARISON, ">"),
    ">=": (_COMPARISON, ">="),
    "&": (6, "&"),
    "+": (7, "+"),
    "-": (7, "-"),
    "*": (8, "*"),
    "/": (8, "/"),
    "%": (8, "%"),
    "**": (_POWER, "**"),
}
_PREFIX = {"not": (4, "not"), "!": (_UNARY, "not"), "-": (_UNARY, "-"), "+": (_UNARY, "+")}
_CONSTANTS = {"null": None, "true": 1, "false": 0}
_AFTER_NAMES = {*_BINARY, ";", ",", ")", "]", "["} - {"-", "+"}
"""What may follow a field called while."""
_KEYWORDS = {"and", "or", "xor", "not", "if", "then", "else", "begin", "end", "return", *_CONSTANTS}
TYPES = {
    "integer": FieldType.INT64,
    "int": FieldType.INT64,
    "int64": FieldType.INT64,
    "int32": FieldType.INT32,
    "boolean": FieldType.INT32,
    "real": FieldType.DOUBLE,
    "double": FieldType.DOUBLE,
    "string": FieldType.STRING,
    "date": FieldType.DATE,
    "stamp": FieldType.STAMP,
    "money": FieldType.MONEY,
    "regex": FieldType.STRING,
}
"""What variables can be declared as; a regex object is kept as its pattern."""


def parse(text: str, variables: Iterable[str] = ()) -> Group:
    """The program that a text is; a plain expression is a program of one step.

    `variables` are known already: `x = 1` at the begin of a step assigns to a variable, and compares anything else.
    """
    return Parser(text, variables).program()


class Parser:
    """Recursive descent over the tokens of one text."""

    def __init__(self, text: str, variables: Iterable[str]) -> None:
        self.text = text
        self._tokens = tokens(text)
        self._place = 0
        self._nesting = 0
        self._open = 0
        self._variables = set(variables)

    @property
    def _next(self) -> Token:
        return self._tokens[self._place]

    def _ahead(self, steps: int) -> Token:
        return self._tokens[min(self._place + steps, len(self._tokens) - 1)]

    def _take(self) -> Token:
        token = self._next
        self._place += token.kind != "end"
        return token

    def _skip(self, word: str) -> bool:
        found = self._next.word == word
        self._place += found
        return found

    def _expect(self, word: str, remedy: str) -> None:
        if not self._skip(word):
            raise fault(self.text, self._next.at, f"{word!r} is missing before {self._shown()}", remedy)

    def _shown(self) -> str:
        return "the end" if self._next.kind == "end" else repr(self._next.text[:40])

    def _enter(self) -> None:
        self._nesting += 1
        if self._nesting > MAX_NESTING or self._open > _MAX_OPEN:
            reason = f"it is nested deeper than {MAX_NESTING} levels"
            raise fault(self.text, self._next.at, reason, "Compute a part of it in a window before.")

    def _height(self, at: int, *below: Node) -> int:
        height = 1 + max(node.height for node in below)
        if height > MAX_HEIGHT:
            reason = f"more than {MAX_HEIGHT} operators follow each other"
            raise fault(
                self.text, at, reason, "Put parts of it into parentheses, or compute a part in a window before."
            )
        return height

    # Programs

    def program(self) -> Group:
        """The whole text."""
        steps: list[Statement] = []
        while self._skip(";"):
            pass
        while self._next.kind != "end":
            self._step(steps)
        return Group(at=0, steps=tuple(steps))

    def _step(self, steps: list[Statement]) -> None:
        """One statement; a declaration may be several."""
        if self._is_declaration():
            self._declarations(steps)
        else:
            steps.append(self._statement())
        while self._skip(";"):
            pass

    def _is_declaration(self) -> bool:
        word, follower = self._next.word, self._ahead(1)
        if word in ("private", "public"):
            word, follower = follower.word, self._ahead(2)
        return word in TYPES and follower.kind == "name" and follower.word not in _KEYWORDS

    def _declarations(self, steps: list[Statement]) -> None:
        if self._next.word in ("private", "public"):
            self._take()
        kind = TYPES[self._take().word]
        while True:
            name = self._take()
            if name.kind != "name":
                raise fault(self.text, name.at, "a name is missing", "Write for example: integer count.")
            self._variables.add(name.text)
            steps.append(Declare(at=name.at, name=name.text, type=kind))
            if self._skip("="):
                steps.append(Assign(at=name.at, name=name.text, value=self.expression()))
            if not self._skip(","):
                return

    def _statement(self) -> Statement:
        token = self._next
        if token.word == "return":
            self._take()
            return Return(at=token.at, value=self.expression())
        if token.word == "begin":
            return self._group()
        if token.word == "if" and not self._is_if_function():
            return self._when()
        if token.kind == "name" and token.text in self._variables and self._ahead(1).word == "=":
            self._place += 2
            return Assign(at=token.at, name=token.text, value=self.expression())
        if token.kind == "name" and self._ahead(1).word == "." and self._ahead(2).word == "compile":
            return self._compile()
        if token.word == "while" and self._ahead(1).word not in _AFTER_NAMES and self._ahead(1).kind != "end":
            return self._while()
        if token.word == "for" and self._ahead(1).kind == "name" and self._ahead(2).word == "=":
            return self._for()
        if token.word == "goto" and self._ahead(1).kind == "name":
            raise fault(self.text, token.at, "there is no goto", "Write while CONDITION begin ... end.")
        return Bare(at=token.at, value=self.expression())

    def _compile(self) -> Assign:
        """R.compile(PATTERN) gives a regex object its pattern."""
        token = self._take()
        self._check_object(token)
        self._place += 1
        call = self._call(self._take()) if self._ahead(1).word == "(" else None
        if not isinstance(call, Call) or len(call.arguments) != 1:
            reason = "compile takes the pattern, and nothing else"
            raise fault(self.text, token.at, reason, f"Write {token.text}.compile('pattern').")
        pattern = call.arguments[0]
        if isinstance(pattern, Literal) and isinstance(pattern.value, str):
            self._check_pattern(pattern.at, pattern.value)
        return Assign(at=token.at, name=token.text, value=pattern)

    def _check_pattern(self, at: int, pattern: str) -> None:
        try:
            matching(pattern)
        except Misfit as misfit:
            raise fault(self.text, at, misfit.reason, misfit.remedy) from None

    def _check_object(self, token: Token) -> None:
        if token.text not in self._variables:
            reason = f"{token.text!r} is no regex object"
            raise fault(self.text, token.at, reason, f"Declare it before: regex {token.text}.")

    def _group(self) -> Group:
        self._enter()
        at = self._take().at
        steps: list[Statement] = []
        while self._next.word != "end":
            if self._next.kind == "end":
                raise fault(self.text, at, "this 'begin' has no 'end'", "Close it with end.")
            self._step(steps)
        self._take()
        self._nesting -= 1
        return Group(at=at, steps=tuple(steps))

    def _while(self) -> Repeat:
        self._enter()
        at = self._take().at
        condition = self.expression()
        self._skip("do")
        body = self._statement()
        self._nesting -= 1
        return Repeat(at=at, condition=condition, body=body)

    def _for(self) -> Group:
        """For x = FIRST to LAST [step STEP]: LAST is asked for in each round, as in the while that it stands for."""
        self._enter()
        self._take()
        token = self._take()
        if token.text not in self._variables:
            remedy = f"Declare it before: integer {token.text}."
            raise fault(self.text, token.at, f"the variable {token.text!r} is not declared yet", remedy)
        self._take()
        begin = Assign(at=token.at, name=token.text, value=self.expression())
        self._expect("to", "Write for x = 1 to 10.")
        last = self.expression()
        step = self.expression() if self._skip("step") else Literal(at=token.at, value=1)
        falls = isinstance(step, Unary) and step.operator == "-"
        if not isinstance(step.operand if isinstance(step, Unary) else step, Literal):
            raise fault(self.text, step.at, "the step of a loop must be a number", "Write for x = 1 to 10 step 2.")
        name = Name(at=token.at, name=token.text)
        height = self._height(token.at, name, last)
        condition = Binary(at=token.at, operator=">=" if falls else "<=", left=name, right=last, height=height)
        self._skip("do")
        more = Binary(at=token.at, operator="+", left=name, right=step, height=3)
        body = Group(at=token.at, steps=(self._statement(), Assign(at=token.at, name=token.text, value=more)))
        self._nesting -= 1
        return Group(at=begin.at, steps=(begin, Repeat(at=token.at, condition=condition, body=body)))

    def _when(self) -> When:
        self._enter()
        at = self._take().at
        condition = self.expression()
        self._skip("then")
        then = self._statement()
        if self._next.word == ";" and self._ahead(1).word == "else":
            self._take()
        otherwise = self._statement() if self._skip("else") else None
        self._nesting -= 1
        return When(at=at, condition=condition, then=then, otherwise=otherwise)

    def _is_if_function(self) -> bool:
        """If a comma stands directly inside the parentheses that follow, it is if(condition, then, else)."""
        if self._ahead(1).word != "(":
            return False
        depth = 0
        for token in self._tokens[self._place + 1 :]:
            depth += (token.word in ("(", "[")) - (token.word in (")", "]"))
            if depth == 0:
                return False
            if depth == 1 and token.word == ",":
                return True
        return False

    # Expressions

    def expression(self, level: int = 0) -> Node:
        """An expression of operators that bind at least as tightly as `level`."""
        self._open += 1
        left = self._operand()
        while (found := _BINARY.get(self._next.word)) and found[0] >= level:
            strength, operator = found
            at = self._take().at
            right = self.expression(strength if strength == _POWER else strength + 1)
            left = Binary(at=at, operator=operator, left=left, right=right, height=self._height(at, left, right))
            if strength == _COMPARISON and _BINARY.get(self._next.word, (0,))[0] == _COMPARISON:
                reason = "comparisons can't be chained"
                raise fault(self.text, self._next.at, reason, "Write a < b and b < c, or use parentheses.")
        self._open -= 1
        return left

    def _operand(self) -> Node:
        self._enter()
        token = self._next
        if token.word in _PREFIX:
            found = self._prefixed()
        elif token.word == "if" and not self._is_if_function():
            found = self._choice()
        else:
            found = self._indexed(self._primary())
        self._nesting -= 1
        return found

    def _prefixed(self) -> Node:
        token = self._take()
        strength, operator = _PREFIX[token.word]
        number = self._next.value
        if operator == "-" and number == MAX_INTEGER and type(number) is int and self._ahead(1).word != "**":
            self._take()
            return Literal(at=token.at, value=-number)
        operand = self.expression(strength)
        return Unary(at=token.at, operator=operator, operand=operand, height=self._height(token.at, operand))

    def _choice(self) -> Node:
        at = self._take().at
        condition = self.expression()
        self._expect("then", "Write if CONDITION then VALUE else VALUE.")
        then = self.expression()
        otherwise: Node = self.expression() if self._skip("else") else Literal(at=at, value=None)
        height = self._height(at, condition, then, otherwise)
        return Choice(at=at, condition=condition, then=then, otherwise=otherwise, height=height)

    def _primary(self) -> Node:
        token = self._take()
        if token.kind == "number":
            if token.value == MAX_INTEGER and type(token.value) is int:
                raise fault(self.text, token.at, f"{token.text} does not fit into int64", "Write it as a double: 1e20.")
            return Literal(at=token.at, value=token.value)
        if token.kind == "text":
            return Literal(at=token.at, value=token.value)
        if token.kind == "quoted":
            return Name(at=token.at, name=token.text, quoted=True)
        if token.word == "(":
            inner = self.expression()
            self._expect(")", "Close the parenthesis.")
            return inner
        if token.kind == "name":
            return self._named(token)
        self._place -= token.kind != "end"
        raise fault(self.text, token.at, f"a value is missing before {self._shown()}", "Write a field, number or text.")

    def _named(self, token: Token) -> Node:
        if self._next.word == "(" and (token.word not in _KEYWORDS or token.word == "if"):
            return self._call(token)
        if token.word in _CONSTANTS:
            return Literal(at=token.at, value=_CONSTANTS[token.word])
        if token.word in _KEYWORDS:
            remedy = f"A field of that name is written `{token.text}`."
            raise fault(self.text, token.at, f"{token.text!r} can't stand here", remedy)
        if self._next.word == ".":
            return self._method(token)
        return Name(at=token.at, name=token.text)

    def _method(self, token: Token) -> Node:
        """R.findfirst(TEXT): whether the pattern of a regex object is found in a text."""
        self._check_object(token)
        self._take()
        name = self._take()
        if name.word != "findfirst" or self._next.word != "(":
            remedy = "Write r.compile('pattern') as a step of its own, and r.findfirst(text) for a value."
            raise fault(self.text, name.at, f"regex objects have no {name.text!r} here", remedy)
        call = self._call(name)
        if not isinstance(call, Call) or len(call.arguments) != 1:
            raise fault(self.text, name.at, "findfirst takes a text", f"Write {token.text}.findfirst(text).")
        given = (call.arguments[0], Name(at=token.at, name=token.text))
        return Call(at=name.at, name=FIND_FIRST, arguments=given, height=self._height(name.at, *given))

    def _call(self, token: Token) -> Node:
        self._take()
        found: list[tuple[Node, str]] = []
        if not self._skip(")"):
            found.append(self._argument())
            while self._skip(","):
                found.append(self._argument())
            self._expect(")", f"Close the parenthesis of {token.text}.")
        arguments, texts = tuple([node for node, _ in found]), tuple([text for _, text in found])
        height = self._height(token.at, *arguments) if arguments else 1
        return Call(at=token.at, name=token.word, arguments=arguments, texts=texts, height=height)

    def _argument(self) -> tuple[Node, str]:
        start = self._next.at
        node = self.expression()
        return node, self.text[start : self._next.at].strip()

    def _indexed(self, node: Node) -> Node:
        while self._next.word == "[":
            at = self._take().at
            index = self.expression()
            self._expect("]", "Close the bracket.")
            node = Index(at=at, array=node, index=index, height=self._height(at, node, index))
        return node
