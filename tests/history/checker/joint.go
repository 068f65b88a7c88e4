package main

import "strings"

// Locks that are made of several: of what servers of a quorum have granted, or of locks that are taken
// together. As far as holders go they are the locks, and the sets, of the other models. But their members
// are asked one by one, and what one of them says is seen before the rest has followed, or failed to. So
// nothing can be said of clients that are refused, or to which the lock seems taken: two that came at the
// same time may refuse each other, and so may what is left of one that was killed. What is judged is who
// holds, until when, and how often; and that a lock that seems free was, unless a server has forgotten it.

var joints = map[string]bool{"quorum": true, "quorum_once": true, "quorum_fenced": true, "quorum_string": true, "multi": true}

// isJoint: of locks on servers that change (moving.go) nothing more can be said, either.
// Nor of locks of ZooKeeper: who comes early in the queue is in the way of all behind it, though it holds nothing yet, or
// gives up.
func isJoint(kind string) bool { return joints[kind] || isMoving(kind) || isSession(kind) }

func isSession(kind string) bool { return strings.HasPrefix(kind, "session") }

// isQuorum: a server that forgets is one of several.
func isQuorum(kind string) bool { return joints[kind] && kind != "multi" }

// refused: somebody else must have come, some time; or the same owner has given up the other side, of which
// something may be left.
func (b *builder) refused(o *op) {
	if o.code != "HF_EBUSY" {
		return
	}
	_, side := splitSide(o.verb)
	for _, other := range b.h.ops {
		_, otherSide := splitSide(other.verb)
		mayBeInTheWay := other.owner != o.owner || unknown[other.code] && otherSide != side
		if other.name == o.name && verbIs(other, "acquire") && mayBeInTheWay && other.call < o.ret {
			return
		}
	}
	b.impossible(o)
}

// mayNest: members of what was not acquired are given back one by one, and the same owner may be there
// before, at one of them.
func (b *builder) mayNest(o *op) bool {
	return b.multi && b.unsettled[o.owner+"_write"]
}

// counts: whether an answer says something of a holder.
func (b *builder) counts(o *op) bool {
	if o.code != "HF_OK" || b.isAtEither(o) {
		return false
	}
	verb, side := splitSide(o.verb)
	if verb == "is_locked" { // Of several locks each is asked at another time; a server of ZooKeeper may be behind.
		return o.value() == 0 && len(o.args["values"]) <= 1 && !b.mayHaveForgotten(o) && !isSession(o.kind)
	}
	return o.value() > 0 && !b.unsettled[o.owner+side]
}

// mayHaveForgotten: to servers of a quorum that have forgotten a holder the lock seems free, before the holder is notified, and
// before anybody else can come in.
func (b *builder) mayHaveForgotten(o *op) bool {
	for _, w := range b.h.wipes {
		if b.quorum && w.from < o.ret {
			return true
		}
	}
	return false
}

// disturbed is from when on a hold may have ended early: a server that has forgotten it may have been
// the one that made a majority. Its owner is notified, and until then nobody else comes in.
func (b *builder) disturbed(o *op) int64 {
	first := b.changedFrom(o)
	for _, w := range b.h.wipes {
		if b.quorum && w.to > o.call && w.from < first {
			first = w.from
		}
	}
	return first
}
