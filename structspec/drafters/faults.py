"""A drafter that fails costs drafts, and no request anything else.

fault               the step goes on without drafts, or the request whose walk it ended
8 steps in a row    it is not asked for the next 1,024; where it then fails again, for twice as many
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from structspec.drafters.base import Drafter, count_hopeful, count_slots
from structspec.engine.batch import Batch, Draft, no_draft

logger = logging.getLogger("structspec")

_MOST_FAULTS = 8  # in a row
_REST = 1024  # steps; what it stumbled over may be gone then


class FaultTolerantDrafter:
    """Proposes what another does, and nothing where that raises."""

    def __init__(self, inner: Drafter, on_fault: Callable[[], None] = lambda: None) -> None:
        """`on_fault` is called for every fault; the log has the first, and each rest."""
        self._inner = inner
        self._on_fault = on_fault
        self._has_logged = False
        self._num_faults = 0  # steps in a row that it cost all drafts
        self._num_to_rest = 0
        self._rest = _REST

    def propose(self, batch: Batch) -> Draft:
        """The other's draft, if there is one."""
        if self._num_to_rest:
            self._num_to_rest -= 1
            return no_draft(len(batch.requests))
        try:
            draft = self._inner.propose(batch)
            faults = draft.faults
        except Exception as error:
            draft, faults = no_draft(len(batch.requests), count_hopeful(batch)), (error,)
        for fault in faults:
            self._note(fault)
        if any(draft.token_ids) or not faults:
            if self._num_faults and any(map(count_slots, batch.requests)):
                self._num_faults, self._rest = 0, _REST
        else:
            self._count_step(faults[-1])
        return draft

    def _note(self, fault: Exception) -> None:
        self._on_fault()
        if not self._has_logged:
            self._has_logged = True
            logger.error(
                "the drafter failed, and the step goes on without the drafts that this has cost;"
                " its faults are counted as spec_decode_num_drafter_faults and not logged again."
                " Mend the class if it is your own, or choose another speculative method",
                exc_info=fault,
            )

    def _count_step(self, fault: Exception) -> None:
        self._num_faults += 1
        if self._num_faults >= _MOST_FAULTS:
            logger.warning(
                "the drafter failed in %d steps in a row, last with %r: the next %d are not"
                " drafted for",
                self._num_faults,
                fault,
                self._rest,
            )
            self._num_to_rest = self._rest
            self._rest *= 2
