"""The same batch, done the slow and obvious way: one step at a time, every sequence on its own. The fast one must equal it."""

from __future__ import annotations

from equipoise.simulate.engine.batch import DecodeBatch
from equipoise.simulate.engine.request import Request


class ReferenceBatch(DecodeBatch):
    """Keeps each sequence's context and remaining tokens by themselves and counts by adding up."""

    __slots__ = ("_context", "_remaining")

    def __init__(self, block_size: int) -> None:
        super().__init__(block_size)
        self._context: dict[Request, int] = {}
        self._remaining: dict[Request, int] = {}

    def __contains__(self, request: Request) -> bool:
        return request in self._context

    def members(self) -> list[Request]:
        """The running sequences in the order they joined."""
        return list(self._context)

    def _count(self) -> None:
        self.size = len(self._context)
        self.context_tokens = sum(self._context.values())

    def join(self, request: Request, context_tokens: int, remaining_tokens: int) -> None:
        """Take a sequence in from the next step on."""
        self._context[request] = context_tokens
        self._remaining[request] = remaining_tokens
        self._count()

    def steps_to_finish(self) -> int:
        """Always one: that is what step by step means."""
        return 1

    def steps_within(self, steps: int, free_blocks: int) -> int:
        """A single step takes no block beyond those it starts with."""
        return 1

    def growth(self, steps: int) -> int:
        """Nothing grows inside a span of one step."""
        if steps > 0:
            raise AssertionError(f"the reference goes one step at a time, asked for {steps + 1}")
        return 0

    def due_growth(self) -> int:
        """One block for every sequence whose next step starts a new block."""
        size = self.block_size
        return sum(-(-context // size) - -(-(context - 1) // size) for context in self._context.values())

    def advance(self, steps: int) -> list[Request]:
        """Do one step."""
        self.iteration += steps
        finished = []
        for request in self._context:
            self._context[request] += 1
            self._remaining[request] -= 1
            if not self._remaining[request]:
                finished.append(request)
        for request in sorted(finished, key=lambda request: request.index):
            self.remove(request)
        self._count()
        return sorted(finished, key=lambda request: request.index)

    def remove(self, request: Request) -> None:
        """Take a sequence out between two steps. Its last figures stay readable."""
        request.context_base = self._context.pop(request) - self.iteration
        request.finish_iteration = self._remaining.pop(request) + self.iteration
        self._count()

    def last(self) -> Request:
        """The sequence that joined last."""
        return next(reversed(self._context))

    def blocks_of(self, request: Request) -> int:
        """Blocks the sequence holds between two steps."""
        context = self._context.get(request, request.context_base + self.iteration)
        return -(-(context - 1) // self.block_size)

    def context_of(self, request: Request) -> int:
        """Tokens the sequence would attend to at the next step."""
        return self._context.get(request, request.context_base + self.iteration)

    def generated_of(self, request: Request) -> int:
        """Tokens of the answer that exist after the steps done so far."""
        return request.output_tokens - self._remaining.get(request, request.finish_iteration - self.iteration)
