"""Continuous batching of decode, advanced in closed form between events.

With B sequences holding C tokens, k steps take k(a + bB + cC) + cBk(k-1)/2 seconds (every step adds one token to every
sequence). KV blocks are exact: a sequence takes a new block each time its context passes a multiple of the block size, and
sequences are counted by that offset, so the growth over any number of steps is a sum over at most one block's worth of offsets.
"""

from __future__ import annotations

from heapq import heappop, heappush

from equipoise.simulate.engine.request import Request


class DecodeBatch:
    """The running sequences of one replica. `iteration` counts its steps; a sequence's context at the next step is
    `context_base + iteration`.
    """

    __slots__ = ("_finish", "_members", "_offsets", "block_size", "context_tokens", "iteration", "size")

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.iteration = 0
        self.size = 0
        self.context_tokens = 0  # of all sequences, at the next step
        self._members: dict[Request, None] = {}  # in the order they joined
        self._offsets = [0] * (2 * block_size)  # sequences by context_base modulo block size, twice over so that slices wrap
        self._finish: list[tuple[int, int, Request]] = []

    def __contains__(self, request: Request) -> bool:
        return request in self._members

    def members(self) -> list[Request]:
        """The running sequences in the order they joined."""
        return list(self._members)

    def join(self, request: Request, context_tokens: int, remaining_tokens: int) -> None:
        """Take a sequence in from the next step on; its blocks for that step are already allocated."""
        base = context_tokens - self.iteration
        request.context_base = base
        request.finish_iteration = last = self.iteration + remaining_tokens
        self.size += 1
        self.context_tokens += context_tokens
        offset = base % self.block_size
        self._offsets[offset] += 1
        self._offsets[offset + self.block_size] += 1
        self._members[request] = None
        heappush(self._finish, (last, request.index, request))

    def steps_to_finish(self) -> int:
        """Steps until the first sequence ends."""
        heap = self._finish
        while True:
            last, _, request = heap[0]
            if request.finish_iteration == last and request in self._members:
                return last - self.iteration
            heappop(heap)

    def steps_within(self, steps: int, free_blocks: int) -> int:
        """At most `steps`, fewer when the blocks that steps 2.. take would pass `free_blocks`."""
        block_size, size = self.block_size, self.size
        if (steps + block_size - 2) // block_size * size <= free_blocks:
            return steps
        cycles = free_blocks // size
        left = free_blocks - cycles * size
        grown = cycles * block_size
        while grown + 1 < steps:
            left -= self._offsets[-(self.iteration + grown) % block_size]
            if left < 0:
                break
            grown += 1
        return min(steps, grown + 1)

    def growth(self, steps: int) -> int:
        """Blocks that the next `steps` transitions from one step to the following one take."""
        cycles, rest = divmod(steps, self.block_size)
        if not rest:
            return cycles * self.size
        start = (1 - self.iteration - rest) % self.block_size
        return cycles * self.size + sum(self._offsets[start : start + rest])

    def due_growth(self) -> int:
        """Blocks that the present members need now to go from the step just done to the next."""
        return self._offsets[(1 - self.iteration) % self.block_size]

    def advance(self, steps: int) -> list[Request]:
        """Do `steps` steps; returns the sequences that ended with the last one."""
        self.iteration = iteration = self.iteration + steps
        self.context_tokens += steps * self.size
        heap = self._finish
        finished: list[Request] = []
        while heap and heap[0][0] <= iteration:
            last, _, request = heappop(heap)
            if request.finish_iteration == last and request in self._members:
                self.remove(request)
                finished.append(request)
        return finished

    def remove(self, request: Request) -> None:
        """Take a sequence out between two steps."""
        del self._members[request]
        self.size -= 1
        self.context_tokens -= request.context_base + self.iteration
        offset = request.context_base % self.block_size
        self._offsets[offset] -= 1
        self._offsets[offset + self.block_size] -= 1

    def last(self) -> Request:
        """The sequence that joined last: the one vLLM's first-come-first-served scheduler preempts first."""
        return next(reversed(self._members))

    def blocks_of(self, request: Request) -> int:
        """Blocks the sequence holds between two steps: those of the step just done."""
        return -(-(request.context_base + self.iteration - 1) // self.block_size)

    def context_of(self, request: Request) -> int:
        """Tokens the sequence would attend to at the next step."""
        return request.context_base + self.iteration

    def generated_of(self, request: Request) -> int:
        """Tokens of the answer that exist after the steps done so far."""
        return request.output_tokens - (request.finish_iteration - self.iteration)
