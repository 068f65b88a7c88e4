package main

import (
	"sort"
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"
)

// An event is what may have happened at one moment, as a model sees it. An operation that has
// returned well is one event between its call and its return. What nobody can know is an event
// that may come at any later time: then its end is forever. A model lets it come only when it has
// something to do, so that fewer orders have to be tried; and there is an event "over", after all that has
// returned, and what comes after it does nothing.
type event struct {
	what    string
	op      *op
	hold    string // whose begin or end it is
	side    string // "_read", "_write"
	late    bool   // the promise of its hold was over when it returned
	free    bool   // of the line of a fair lock: it may have been passed over, and come back
	line    string // who was seen to stand in line
	unknown string // and who else was, for a wait that is not known
	mask    uint8  // of a set: which values
	either  bool   // see moving.go: it may have been at the old primary, or at the new one
	more    bool   // it may have found something of its own, and nested
	like    int    // see alike: which of them,
	rank    int    // and how many of them come before
	chance  *chance
	until   int64 // of a chance, 0: none: when nothing is left of it
}

// Codes after which nobody knows what the server did, or will do yet.
var unknown = map[string]bool{"": true, "HF_EINDOUBT": true, "HF_EUNREACH": true, "HF_EUNAVAILABLE": true,
	"HF_ECLOSED": true, "HF_ECANCELED": true, "HF_ETIMEDOUT": true, "HF_ENOQUORUM": true}

type builder struct {
	h *history
	// Owners, and sides, that have given something up: until that is settled, they may wait for it.
	unsettled map[string]bool
	breaks    []*op
	loose     bool // a waiter may have been passed over
	joint     bool // see joint.go
	quorum    bool
	multi     bool // locks that are taken together
	moving    bool // see moving.go
	alikes    map[string]*alike
	chances   map[string]*chance // nil: none, all is left to Porcupine
	events    []porcupine.Operation
}

func (b *builder) add(from, to int64, e *event) {
	if e.mask == 0 && e.op.args["values"] != "" {
		e.mask = maskOf(e.op)
	}
	b.events = append(b.events, porcupine.Operation{Input: e, Call: from, Return: to})
}

// whole is an event some time between call and return.
func (b *builder) whole(e *event) {
	b.add(e.op.call, e.op.ret, e)
}

// ever is an event some time after `from`, or never.
func (b *builder) ever(from int64, e *event) {
	b.add(from, forever, e)
}

// impossible is an answer that nothing explains.
func (b *builder) impossible(o *op) {
	b.whole(&event{what: "impossible", op: o})
}

func (b *builder) wipes() {
	for _, w := range b.h.wipes {
		b.add(w.from, w.to, &event{what: "wipe", op: &op{id: "wipe", verb: "wipe"}})
	}
}

func (b *builder) over() {
	var last int64
	for _, e := range b.events {
		if e.Return != forever && e.Return > last {
			last = e.Return
		}
	}
	b.ever(last+1, &event{what: "over", op: &op{id: "over", verb: "over"}})
}

// until is how long a hold was promised to last; without a word of that, not even from the start.
func (b *builder) until(hold string, start int64) int64 {
	if until, ok := b.h.sure[hold]; ok {
		return until
	}
	return start
}

func (b *builder) isLate(hold string, o *op) bool {
	return hold == "-" || o.ret >= b.until(hold, o.call)-leeway
}

// ends adds the end by itself of each hold that was not released for certain: after its promise, or
// after a release whose outcome is not known.
func (b *builder) ends(begun map[string]*op, over map[string]bool, given map[string]int64) {
	var holds []string
	for hold := range begun {
		if !over[hold] {
			holds = append(holds, hold)
		}
	}
	sort.Strings(holds)
	for _, hold := range holds {
		o := begun[hold]
		from := b.until(hold, o.call) - leeway
		if release, ok := given[hold]; ok && release < from {
			from = release
		}
		if disturbed := b.disturbed(o); disturbed < from {
			from = disturbed
		}
		if from < o.call {
			from = o.call
		}
		b.may(from, "end-"+hold, &event{what: "end", op: o, hold: hold}, ends)
	}
}

// give notes a release of which nobody knows whether it was done. One that says that there was nothing
// to release is such a one if the promise was over when it said so: the answer to an earlier copy of
// it may have been lost.
func (b *builder) give(o *op, hold string, given map[string]int64) {
	if _, ok := given[hold]; !ok && (unknown[o.code] || b.isLate(hold, o)) {
		given[hold] = o.call
	}
}

// ---- Locks ---------------------------------------------------------------------------------------

func splitSide(verb string) (string, string) {
	for _, side := range []string{"_read", "_write"} {
		if strings.HasSuffix(verb, side) {
			return strings.TrimSuffix(verb, side), side
		}
	}
	return verb, "_write"
}

// inDoubt is an acquire that may have taken the lock, or may yet, and of which nothing remains in the
// end. At a fair lock it may have come before the owner that has been granted it since.
func (b *builder) inDoubt(o *op, side string, free bool) {
	hold := "given-up-" + o.owner + side + o.args["values"]
	b.may(o.call, hold, &event{what: "take if free", op: o, hold: hold, side: side, free: free}, adds)
	b.may(o.call, "end-"+hold, &event{what: "end", op: o, hold: hold}, ends)
}

// watchdog is the lease of holds without one of their own. silence is how long a waiter may be silent before it can be passed over: its lease, and the shortest
// is 250 ms. Who has lost its connection can be passed over at once, until it has another.
const (
	watchdog  = 1500 * 1000000
	silence   = 200 * 1000000
	reconnect = 3000 * 1000000
)

// inLine is a wait for a fair lock: it is queued, and is granted the lock, or leaves. Of the waiters that
// may have been passed over when their turn came, or have been forgotten with the line, nothing is known
// but that they hold the lock, or not: they come back, to their place or to the end.
func (b *builder) inLine(o *op, ops []*op) {
	if b.mayBePassedOver(o) {
		if o.code == "HF_OK" {
			b.whole(&event{what: "take", op: o, hold: o.id, side: "_write", free: true})
			b.stoodBefore(o)
		} else {
			b.inDoubt(o, "_write", true)
		}
		return
	}
	stand := &event{what: "stand", op: o, hold: o.id}
	if o.code == "HF_OK" {
		b.whole(stand)
		b.whole(&event{what: "take granted", op: o, hold: o.id})
	} else {
		// What was sent may arrive when it was given up already.
		stand.until = settledBy(o, ops)
		b.may(o.call, "stand-"+o.id, stand, stands)
		b.may(o.call, "leave-"+o.id, &event{what: "leave", op: o, hold: o.id}, ends)
	}
}

// stoodBefore: a server that forgets the line while somebody waits is asked again. So it may have refused others
// before, because of one that is granted the lock only afterwards.
func (b *builder) stoodBefore(o *op) {
	for i, w := range b.h.wipes {
		if w.to <= o.call || w.from >= o.ret {
			continue
		}
		hold := "stood-" + o.id + "-" + strconv.Itoa(i)
		b.may(o.call, hold, &event{what: "take if free", op: o, hold: hold, side: "_write", free: true, until: w.to}, adds)
		b.may(o.call, "end-"+hold, &event{what: "end", op: o, hold: hold}, ends)
	}
}

// settledBy is when nothing is left of a wait that was given up: before the same owner is answered again, by
// which the server knew that.
func settledBy(o *op, ops []*op) int64 {
	for _, next := range ops {
		answered := next.code == "HF_OK" || next.code == "HF_EBUSY"
		if next.owner == o.owner && verbIs(next, "acquire") && answered && next.call >= o.ret {
			return next.ret
		}
	}
	return forever
}

func (b *builder) mayBePassedOver(o *op) bool {
	end := o.ret
	if killed, ok := b.h.kills[o.process]; ok && killed < end {
		end = killed
	}
	for _, broken := range b.breaks {
		if broken.call < end && o.call < broken.ret {
			return true
		}
	}
	return b.loose || end-o.call >= silence
}

// isLoose: connections were lost, or the server's memory, while this name was played, or just before.
func isLoose(h *history, ops []*op) bool {
	first, last := ops[0].call, ops[len(ops)-1].call
	for _, cut := range h.cuts {
		if first-reconnect < cut && cut < last {
			return true
		}
	}
	return false
}

func isInLine(o *op) bool {
	return o.verb == "acquire" && o.args["nested"] != "1" && o.args["wait"] != "0"
}

// seen is the line of a look, and who stands there of whom it is not known for which wait. That may be what is left of a
// wait that was given up, or a wait that is known: so they are left out of both lines.
func (b *builder) seen(look *op, ops []*op) (known, unknown string) {
	var line []string
	for _, owner := range strings.Split(look.outs["queue"], ",") {
		isKnown := owner != ""
		for _, o := range ops {
			if o.owner == owner && isInLine(o) && o.call < look.ret && b.mayBePassedOver(o) {
				isKnown = isKnown && o.code == "HF_OK" && o.ret < look.call
			}
		}
		if isKnown {
			line = append(line, owner)
		} else if owner != "" {
			unknown += owner + " "
		}
	}
	return strings.Join(line, ","), unknown
}

// noteSettled: what the server has answered came after all that was given up before it.
func (b *builder) noteSettled(o *op, side string) {
	if b.multi {
		b.unsettled[o.owner+side] = b.unsettled[o.owner+side] || o.code != "HF_OK"
	} else if unknown[o.code] || o.code == "HF_ELOST" {
		b.unsettled[o.owner+side] = true
	} else if o.code == "HF_OK" || o.code == "HF_EBUSY" {
		b.unsettled[o.owner+side] = false
	}
}

// mayHaveLost: the answer to an earlier attempt of it, which may have succeeded. Of one that was lost with
// all that the server knew there is nothing to tell.
func (b *builder) mayHaveLost(o *op) bool {
	for _, cut := range b.h.cuts {
		if o.call < cut && cut < o.ret && len(b.h.wipes) == 0 {
			return true
		}
	}
	return false
}

// isTooLate: the lease may have been over before the answer came. A client trusts 99 % of a lease.
func isTooLate(o *op) bool {
	trusted := int64(watchdog) / 100 * 99
	if o.args["lease"] != "" && o.number("lease") > 0 && o.number("lease")*990000 < trusted {
		trusted = o.number("lease") * 990000
	}
	return o.ret-o.call >= trusted
}

// mayHaveGivenUp: an attempt may have taken the lock, and had ended before the next. Past half its lease the
// client releases the token of a string lock's unanswered attempt, and draws another.
func (b *builder) mayHaveGivenUp(o *op) bool {
	given := *o
	if o.kind == "string" {
		given.ret += o.ret - o.call
	}
	return isTooLate(&given) && b.mayHaveLost(o)
}

func (b *builder) acquire(o *op, ops []*op, side string, fair bool) {
	hold := o.args["hold"]
	nested := o.args["nested"] == "1"
	inLine := fair && isInLine(o)
	switch {
	case b.joint && (o.code == "HF_EBUSY" || unknown[o.code] && !nested):
		b.refused(o)
	case inLine && (o.code == "HF_OK" || unknown[o.code]):
		b.inLine(o, ops)
	case o.code == "HF_OK" && nested && b.isAtEither(o):
		b.whole(&event{what: "nest perhaps", op: o, hold: hold, side: side})
	case o.code == "HF_OK" && nested:
		b.whole(&event{what: "nest", op: o, hold: hold, side: side})
	case o.code == "HF_OK":
		b.whole(&event{what: "take", op: o, hold: o.id, side: side, more: b.mayNest(o),
			either: b.isAtEither(o)})
		if !b.joint && b.mayHaveGivenUp(o) {
			b.inDoubt(o, side, fair)
		}
	case o.code == "HF_EBUSY":
		b.whole(&event{what: "busy", op: o, side: side})
		if b.mayHaveGivenUp(o) {
			b.inDoubt(o, side, fair)
		}
	case o.code == "HF_ELOST":
		b.whole(&event{what: "lost", op: o, hold: hold, side: side, late: b.isLate(hold, o)})
	case o.code == "HF_EDEADLK" && (nested || side == "_write"):
		b.whole(&event{what: "would wait for itself", op: o, hold: hold, side: side, late: b.isLate(hold, o)})
	case unknown[o.code] && nested:
		b.whole(&event{what: "nest perhaps", op: o, hold: hold, side: side})
	case unknown[o.code]:
		if o.code == "HF_ETIMEDOUT" && !b.unsettled[o.owner+side] && !isTooLate(o) && !b.mayHaveGivenUp(o) {
			b.whole(&event{what: "busy", op: o, side: side})
		}
		b.inDoubt(o, side, fair)
	default:
		b.impossible(o)
	}
}

func (b *builder) onHold(o *op, verb, side string) {
	hold := o.args["hold"]
	e := &event{what: verb, op: o, hold: hold, side: side, late: b.isLate(hold, o)}
	switch {
	case o.code == "HF_OK" && b.isAtEither(o) && verb == "release":
		e.what = "release at either"
	case o.code == "HF_OK" && b.isAtEither(o):
		return
	case o.code == "HF_OK" && hold != "-":
	case o.code == "HF_ELOST" && hold != "-":
		e.what = "lost"
	case o.code == "HF_ENOTOWNER":
		e.what = "not held"
	case unknown[o.code] && verb == "release":
		e.what = "release perhaps"
	case unknown[o.code]:
		return
	default:
		b.impossible(o)
		return
	}
	b.whole(e)
}

// lastHold is what its owner acquired last before.
func lastHold(o *op, ops []*op) string {
	hold := "-"
	for _, earlier := range ops {
		if earlier.owner == o.owner && earlier.code == "HF_OK" && verbIs(earlier, "acquire") &&
			earlier.args["nested"] != "1" && earlier.ret <= o.call {
			hold = earlier.id
		}
	}
	return hold
}

func lockEvents(h *history, ops []*op) []porcupine.Operation {
	b := &builder{h: h, unsettled: map[string]bool{}, loose: isLoose(h, ops), joint: isJoint(ops[0].kind),
		quorum: isQuorum(ops[0].kind), multi: ops[0].kind == "multi", moving: isMoving(ops[0].kind)}
	b.loose = b.loose || b.moving
	b.chances = map[string]*chance{}
	for _, o := range ops {
		if strings.HasPrefix(o.verb, "break") && (o.code != "HF_OK" || o.value() == 1) {
			b.breaks = append(b.breaks, o)
		}
	}
	begun, over, given := map[string]*op{}, map[string]bool{}, map[string]int64{}
	for _, o := range ops {
		verb, side := splitSide(o.verb)
		switch verb {
		case "acquire":
			if o.code == "HF_OK" && o.args["nested"] != "1" {
				begun[o.id] = o
			}
			b.acquire(o, ops, side, o.kind == "fair" || o.kind == "moving_fair")
			b.noteSettled(o, side)
		case "release":
			if o.args["left"] == "0" && o.code == "HF_OK" {
				over[o.args["hold"]] = true
			} else if o.args["left"] == "0" {
				b.give(o, o.args["hold"], given)
			}
			b.onHold(o, verb, side)
			b.noteSettled(o, side)
		case "extend":
			b.onHold(o, verb, side)
		case "break":
			if o.kind == "group" {
				b.breakValues(o)
			} else if o.code == "HF_OK" {
				b.whole(&event{what: "break", op: o, side: side})
			} else {
				b.may(o.call, "break-"+side, &event{what: "break perhaps", op: o, side: side}, breaks)
			}
		case "trust":
			if o.code == "HF_OK" && o.value() > 0 && !b.isInDoubt(o, begun[o.args["hold"]]) {
				b.whole(&event{what: verb, op: o, hold: o.args["hold"], side: side})
			}
		case "is_locked", "count", "look":
			if verb == "look" && b.loose || b.joint && !b.counts(o) {
				continue
			}
			if o.code == "HF_OK" {
				hold := lastHold(o, ops)
				line, unknown := b.seen(o, ops)
				b.whole(&event{what: verb, op: o, hold: hold, side: side, line: line, unknown: unknown,
					late: b.quorum && hold != "-" && b.isLate(hold, o)})
			} else if !unknown[o.code] {
				b.impossible(o)
			}
		default:
			panic("what is " + o.verb + "?")
		}
	}
	b.ends(begun, over, given)
	b.giveUps(ops, begun)
	if !b.quorum {
		b.wipes()
	}
	b.over()
	return b.events
}

// breakValues: the holders of a group's values are read first, and broken then, each by its name.
// So some of them are, or all; when, is known only from the call on.
func (b *builder) breakValues(o *op) {
	if o.code == "HF_OK" && o.value() == 0 {
		b.whole(&event{what: "nothing to break", op: o})
		return
	}
	for value, mask := 0, maskOf(o); value < setValues; value++ {
		if mask>>value&1 != 0 {
			b.may(o.call, "break-"+strconv.Itoa(value), &event{what: "break value", op: o, mask: 1 << value}, breaks)
		}
	}
}

// giveUps: a hold of which values were broken is given up some time after that.
func (b *builder) giveUps(ops []*op, begun map[string]*op) {
	for _, o := range ops {
		if begun[o.id] != nil && len(b.breaks) > 0 && o.kind == "group" {
			b.may(o.call, "give-up-"+o.id, &event{what: "give up", op: o, hold: o.id}, ends)
		}
	}
}
