package main

import "strings"

// Locks on a server that changes: a primary that sentinels replace, or a cluster's. A new primary may lack
// the last writes of the old one, and for a moment both answer. docs/guarantees.md says what may come of
// it, and that is all that is allowed here:
//
//   - A client that held something before the change may have lost it, from the moment the change began; others
//     may come in beside it, until it is notified. That is by its deadline at the latest, or it has the hold
//     again for certain. So nothing is judged of its trust until then, and all of it afterwards; and its
//     release never says that it was held to the end if somebody else was inside.
//   - What was answered while both could answer may have been at either.
//   - A token that is drawn later is larger, whatever was lost.
//
// As with locks that are made of several (joint.go), nothing is said of who was refused.

func isMoving(kind string) bool { return strings.HasPrefix(kind, "moving") }

// isAtEither: the operation may have been done at the old primary, or at the new one.
func (b *builder) isAtEither(o *op) bool {
	for _, c := range b.h.changes {
		if b.moving && o.call < c.to && o.ret > c.from {
			return true
		}
	}
	return false
}

// isInDoubt: the owner of a hold may not know yet what a change has cost it.
func (b *builder) isInDoubt(o, begun *op) bool {
	for _, c := range b.h.changes {
		if b.moving && begun != nil && begun.call < c.to && o.call < c.known && o.ret > c.from {
			return true
		}
	}
	return false
}

// changedFrom is from when on a hold may be gone because the primary changed.
func (b *builder) changedFrom(o *op) int64 {
	first := int64(forever)
	for _, c := range b.h.changes {
		if b.moving && c.to > o.call && c.from < first {
			first = c.from
		}
	}
	return first
}
