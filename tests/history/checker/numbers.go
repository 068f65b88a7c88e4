package main

import (
	"strings"

	"github.com/anishathalye/porcupine"
)

// Events of things that nobody holds: semaphores, latches and permits.

// mostAlikes is how many sorts of events without an end are put in order at one name; those of a further
// sort are not.
const mostAlikes = 16

// An alike is a sort of events that may come at any time after their calls, and of which it makes no
// difference which one comes. So they come in the order of their calls: if any order explains the
// answers, one with this order does, and of 20 acquires that were given up it matters how many have taken
// something, not which of a million sets of them.
type alike struct {
	index, count int
}

// perhaps is an event some time after the call of its operation, or never.
func (b *builder) perhaps(e *event) {
	sort := e.what + e.op.args["permits"]
	a := b.alikes[sort]
	if a == nil {
		a = &alike{index: len(b.alikes) + 1}
		b.alikes[sort] = a
	}
	if a.index <= mostAlikes {
		e.like, e.rank = a.index, a.count
	}
	a.count++
	b.ever(e.op.call, e)
}

// A progress is how many events of each sort have come.
type progress [mostAlikes]uint16

// comes is false if another one has to come before.
func (p *progress) comes(e *event) bool {
	if e.like == 0 {
		return true
	}
	done := &p[e.like-1]
	if int(*done) != e.rank {
		return false
	}
	*done++
	return true
}

// givenUp is who has what was taken by acquires of so many permits that were given up.
func givenUp(o *op) string {
	return "given-up-" + o.args["permits"]
}

// numberEvents are those of semaphores and latches: an operation was done once, or perhaps.
func numberEvents(h *history, ops []*op) []porcupine.Operation {
	b := &builder{h: h, alikes: map[string]*alike{}}
	for _, o := range ops {
		waits := o.verb == "acquire" || o.verb == "await"
		switch {
		case o.code == "HF_OK":
			b.whole(&event{what: o.verb, op: o})
		case o.code == "HF_EBUSY" && waits:
			b.whole(&event{what: "busy", op: o})
		case o.verb == "acquire" && unknown[o.code]:
			if o.code == "HF_ETIMEDOUT" {
				b.whole(&event{what: "busy", op: o})
			}
			b.perhaps(&event{what: "take if there", op: o, hold: givenUp(o)})
			b.perhaps(&event{what: "give if taken", op: o, hold: givenUp(o)})
		case o.verb == "await" && o.code == "HF_ETIMEDOUT":
			b.whole(&event{what: "busy", op: o})
		case unknown[o.code] && (waits || o.verb == "available" || o.verb == "count"):
		case unknown[o.code]:
			b.perhaps(&event{what: o.verb + " perhaps", op: o})
		default:
			b.impossible(o)
		}
	}
	b.wipes()
	b.over()
	return b.events
}

func permitEvents(h *history, ops []*op) []porcupine.Operation {
	b := &builder{h: h, alikes: map[string]*alike{}}
	begun, over, given := map[string]*op{}, map[string]bool{}, map[string]int64{}
	for _, o := range ops {
		switch o.verb {
		case "acquire":
			b.acquirePermits(o, begun)
		case "release", "extend":
			b.onPermits(o, over, given)
		case "try_set":
			if o.code == "HF_OK" {
				b.whole(&event{what: o.verb, op: o})
			} else {
				b.perhaps(&event{what: "try_set perhaps", op: o})
			}
		default:
			if o.code == "HF_OK" {
				b.whole(&event{what: o.verb, op: o})
			} else if !unknown[o.code] {
				b.impossible(o)
			}
		}
	}
	b.ends(begun, over, given)
	b.wipes()
	b.over()
	return b.events
}

func ids(text string) []string {
	return strings.Split(text, ",")
}

func (b *builder) permitsInDoubt(o *op) {
	b.perhaps(&event{what: "take if there", op: o, hold: givenUp(o)})
	b.perhaps(&event{what: "end given up", op: o, hold: givenUp(o)})
}

func (b *builder) acquirePermits(o *op, begun map[string]*op) {
	switch {
	case o.code == "HF_OK":
		for _, id := range ids(o.outs["ids"]) {
			begun[id] = o
		}
		b.whole(&event{what: "acquire", op: o})
		if o.ret-o.call >= silence && b.mayHaveLost(o) {
			b.permitsInDoubt(o)
		}
	case o.code == "HF_EBUSY" && isSession(o.kind): // see isJoint
	case o.code == "HF_EBUSY":
		b.whole(&event{what: "busy", op: o})
	case unknown[o.code]:
		if o.code == "HF_ETIMEDOUT" && !isTooLate(o) && !isSession(o.kind) {
			b.whole(&event{what: "busy", op: o})
		}
		b.permitsInDoubt(o)
	default:
		b.impossible(o)
	}
}

func (b *builder) onPermits(o *op, over map[string]bool, given map[string]int64) {
	e := &event{what: o.verb, op: o}
	for _, id := range ids(o.args["ids"]) {
		e.late = e.late || b.isLate(id, o)
		if o.verb == "release" && o.code == "HF_OK" {
			over[id] = true
		} else if o.verb == "release" {
			b.give(o, id, given)
		}
	}
	switch {
	case o.code == "HF_OK":
	case o.code == "HF_ELOST" && o.verb == "release":
		e.what = "release late"
	case o.code == "HF_ENOTOWNER" || o.code == "HF_ELOST":
		e.what = "not there"
	case unknown[o.code]:
		return
	default:
		b.impossible(o)
		return
	}
	b.whole(e)
}
