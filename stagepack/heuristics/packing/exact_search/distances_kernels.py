"""Compiled kernel of the forbidden distances between blocks of any shape.

Cost: O(pieces of both + r^2) a pair of blocks, r of whose pieces meet.  Source: ours.
"""

from __future__ import annotations

from stagepack.instances.profile import Array
from stagepack.kernels.compiled import compiled, step


@compiled
def forbidden(
    near_ptr: Array,
    near: Array,
    piece_ptr: Array,
    pieces: Array,
    share_ptr: Array,
    share: Array,
    ptr: Array,
    low: Array,
    high: Array,
) -> int:
    """Write the forbidden distances o_i - o_j of the entries (i, j) of `near` as rows of runs.

    Parameters
    ----------
    near_ptr, near : ndarray of int64
        Blocks that share a section, as rows.
    piece_ptr : ndarray of int64
        Where the pieces of each block begin.
    pieces : ndarray of int64, shape (pieces, 4)
        First section, ascending for each block, end, and bytes [low, high) above the offset.
    share_ptr, share : ndarray of int64
        Rows of the blocks that may share an offset.
    ptr, low, high : ndarray of int64
        To be written: rows of runs, at most as many as pairs of pieces that meet, in either order,
        and as `share`: a pair writes one run before runs are joined, which makes them fewer, and
        the offset that two blocks may share parts one of their runs.

    Returns
    -------
    int
        Number of runs.
    """
    used = 0
    for i in range(len(near_ptr) - 1):
        for e in range(near_ptr[i], near_ptr[i + 1]):
            j = near[e]
            begin = used
            following = piece_ptr[j]
            for p in range(piece_ptr[i], piece_ptr[i + 1]):
                # Pieces ascend: what ends before this one ends before all that come.
                while following < piece_ptr[j + 1] and pieces[following, 1] <= pieces[p, 0]:
                    following += 1
                for q in range(following, piece_ptr[j + 1]):
                    if pieces[q, 0] >= pieces[p, 1]:
                        break
                    if pieces[p, 0] < pieces[q, 1]:
                        k = used
                        a = pieces[q, 2] - pieces[p, 3] + 1
                        # Insertion sort by `low`: mostly two or three runs.
                        while k > begin and low[k - 1] > a:
                            low[k] = low[k - 1]
                            high[k] = high[k - 1]
                            k -= 1
                        low[k] = a
                        # Distances from just above "p ends where q begins" to just below "q ends
                        # where p begins".
                        high[k] = pieces[q, 3] - pieces[p, 2] - 1
                        used += 1
            joined = begin
            for k in range(begin + 1, used):
                # Whole numbers: runs that touch are one.
                if low[k] <= high[joined] + 1:
                    high[joined] = max(high[joined], high[k])
                else:
                    joined += 1
                    low[joined] = low[k]
                    high[joined] = high[k]
            used = joined + 1 if used > begin else begin
            for r in range(share_ptr[i], share_ptr[i + 1]):
                if share[r] == j:
                    # Equal offsets are what the two may share.
                    used = _without_zero(low, high, begin, used)
            ptr[e + 1] = used
    return used


@step
def _without_zero(low: Array, high: Array, begin: int, used: int) -> int:
    """Take zero out of the runs begin .. used - 1; return where they end."""
    for k in range(begin, used):
        if low[k] <= 0 <= high[k]:
            if low[k] < 0 < high[k]:
                # Zero parts the run: the runs behind it move up to make room.
                for r in range(used, k, -1):
                    low[r] = low[r - 1]
                    high[r] = high[r - 1]
                high[k] = -1
                low[k + 1] = 1
                return used + 1
            if low[k] < 0:
                high[k] = -1
            elif high[k] > 0:
                low[k] = 1
            else:
                for r in range(k, used - 1):
                    low[r] = low[r + 1]
                    high[r] = high[r + 1]
                return used - 1
            return used
    return used
