"""One epoch of a measurement over all agents: the sum of its snapshots, and the state of each."""

import dataclasses
import hashlib

from . import _flowgauge, errors

# Maximum number of groups of compatible snapshots per epoch.
GROUPS = 8

# Maximum number of agents with rejected snapshots that an epoch names.
NAMED = 1000


@dataclasses.dataclass
class Group:
    """Snapshots that merge with each other, by agent and id, with a hash of the bytes of each.

    A report is of the group with most agents, so that one agent with another seed does not keep all others
    out.
    """

    sum: _flowgauge.Snapshot
    end_ns: int
    parts: dict

    @property
    def agents(self):
        return {agent for agent, _ in self.parts}


class Epoch:
    """An epoch that is open, or reported and still open to corrections."""

    def __init__(self, start_ns):
        self.start_ns = start_ns
        # The latest end in any message.
        self.named_end_ns = start_ns
        self.groups = []
        # Why an agent's snapshot was rejected.
        self.left_out = {}
        # Agents not waited for any more: they sent the end of the epoch, or nothing that merges.
        self.heard = set()
        # Whether there are unreported changes.
        self.is_changed = False

    @property
    def end_ns(self):
        chosen = self.chosen()
        return chosen.end_ns if chosen else self.named_end_ns

    def add(self, part, load):
        """Adds a snapshot, once: a row with its `agent`, its `id`, the `end_ns` that it names, and its bytes.
        `load` reads them."""
        self.named_end_ns = max(self.named_end_ns, part.end_ns)
        key, digest = (part.agent, part.id), hashlib.blake2b(part.value, digest_size=16).digest()
        before = next((group.parts[key] for group in self.groups if key in group.parts), None)
        if before is not None:
            if before != digest:
                self.leave_out(part.agent, f"{part.id} came again with other bytes; the first one counts")
            return
        try:
            snapshot = load(part.value)
            is_last = self.check(snapshot, part)
            self.merge(snapshot, part.end_ns, key, digest)
        except errors.SnapshotError as error:
            self.leave_out(part.agent, str(error))
            return
        if is_last:
            self.heard.add(part.agent)
        self.is_changed = True

    def check(self, snapshot, part):
        """Checks that a snapshot is of the epoch in its message; returns whether it includes the epoch's end."""
        bounds_ns = (self.start_ns, part.end_ns)
        if snapshot.measurement != part.measurement or any((one["start_ns"], one["end_ns"]) != bounds_ns for one in snapshot.coverage):
            raise errors.SnapshotError("it is not of the epoch that its headers name")
        if self.start_ns % (part.end_ns - self.start_ns) != 0:
            raise errors.SnapshotError("only epochs that end by time are of the same time everywhere")
        return any(one["observed_to_ns"] >= part.end_ns for one in snapshot.coverage)

    def merge(self, snapshot, end_ns, key, digest):
        """Adds a snapshot to the group of its identity, which may refuse it: each epoch of a run counts once."""
        for group in self.groups:
            if group.sum._difference(snapshot) is None:
                group.sum.merge(snapshot)
                group.parts[key] = digest
                return
        if len(self.groups) == GROUPS:
            raise errors.SnapshotError(f"{GROUPS} agents before it differ from each other")
        self.groups.append(Group(snapshot, end_ns, {key: digest}))

    def leave_out(self, agent, reason):
        """Records a rejected snapshot. The first reason of each agent counts."""
        if agent not in self.left_out and len(self.left_out) < NAMED:
            self.left_out[agent] = reason
            self.heard.add(agent)
            self.is_changed = True

    def chosen(self):
        """The group to report, or `None` if nothing was merged."""
        return max(self.groups, key=lambda group: len(group.agents), default=None)

    def is_complete(self, expected):
        """Whether each of these agents has sent its last snapshot; never true without a list."""
        return expected is not None and self.heard >= expected

    def completeness(self, expected):
        """Of a report: how many agents there are, how many are in it, which are missing, and which are left
        out, with the reason."""
        chosen, left_out = self.chosen(), dict(self.left_out)
        for group in self.groups:
            if group is not chosen:
                reason = chosen.sum._difference(group.sum)
                left_out.update(dict.fromkeys(group.agents - chosen.agents, reason))
        agents = set(expected) | chosen.agents | left_out.keys()
        missing = sorted(agents - chosen.agents - left_out.keys())
        return {"agents": len(agents), "reported": len(chosen.agents), "missing": missing, "left_out": left_out}
