package main

import "github.com/anishathalye/porcupine"

// Cohorts: threads of one process that pass a lock on without the server (HF_COHORT). At the server the process
// has it, from a grant to a release: a tenure. docs/guarantees.md says what is different from other locks, and
// that is all that is allowed here:
//
//   - A release while another thread of the process waited may have passed the lock on, or given it back: to
//     others it is free from then on, and to the server it may be held for a while.
//   - A tenure that was broken, or forgotten by a server that restarts empty, is passed on until the process knows. So
//     a release of it may say that all is well if somebody waited for it here, and only then; and a thread that is let
//     in on it may be inside beside others. That ends when the process finds out, by its deadline at the latest.
//   - In one process there is one inside, whatever is lost; the thread that was granted the lock by the server has it
//     alone but for those; and a loss that has no such cause is reported, or nobody else comes in before the deadline.
//
// Nothing is said of who was refused, but that somebody else must have come: threads that wait are as good as
// one that has it.

// maxLost is more processes than meet at one name, those that took the place of others included.
const maxLost = 12

type tenure struct {
	process string
	inside  hold // no owner: nobody
}

// All of it can be compared.
type cohortState struct {
	server tenure          // who has it there
	loose  bool            // it may have been given back
	lost   [maxLost]tenure // in which a process believes, and which the server does not know any more; by process
}

func beginCohort() interface{} { return cohortState{} }

// forget: the server has the tenure no more, and its process does not know.
func (s *cohortState) forget() {
	if s.server.process != "" {
		s.lose(s.server)
	}
	s.server, s.loose = tenure{}, false
}

func wipeCohort(state interface{}) interface{} {
	s := state.(cohortState)
	s.forget()
	return s
}

func (s *cohortState) lose(t tenure) {
	s.learn(t.process)
	at := 0
	for at < maxLost && s.lost[at].process != "" && s.lost[at].process < t.process {
		at++
	}
	if s.lost[maxLost-1].process != "" {
		panic("more processes than there is room for")
	}
	copy(s.lost[at+1:], s.lost[at:maxLost-1])
	s.lost[at] = t
}

func (s *cohortState) lostOf(process string) *tenure {
	for i := range s.lost {
		if s.lost[i].process == process && process != "" {
			return &s.lost[i]
		}
	}
	return nil
}

// learn: the process knows. Says whether there was something to learn.
func (s *cohortState) learn(process string) bool {
	for i := range s.lost {
		if s.lost[i].process == process && process != "" {
			copy(s.lost[i:], s.lost[i+1:])
			s.lost[maxLost-1] = tenure{}
			return true
		}
	}
	return false
}

func (s *cohortState) isFree() bool { return s.server.process == "" || s.loose }

// of is the tenure in which the hold is, and the hold; nil: in none.
func (s *cohortState) of(id string) (*tenure, *hold) {
	if s.server.inside.owner != "" && s.server.inside.id == id {
		return &s.server, &s.server.inside
	}
	for i := range s.lost {
		if s.lost[i].inside.owner != "" && s.lost[i].inside.id == id {
			return &s.lost[i], &s.lost[i].inside
		}
	}
	return nil, nil
}

// leave: nobody is inside any more, and the server gets the release sooner or later.
func (s *cohortState) leave(t *tenure) {
	t.inside = hold{}
	if t == &s.server {
		s.loose = true
	}
}

func (s *cohortState) take(e *event) bool {
	mine := hold{owner: e.op.owner, id: e.hold, count: 1}
	if integer(e.op.outs["count"]) != 1 {
		return false
	}
	if lost := s.lostOf(e.op.process); lost != nil {
		ok := e.either && lost.inside.owner == ""
		lost.inside = mine
		return ok
	}
	if !s.isFree() {
		return false
	}
	s.server, s.loose = tenure{e.op.process, mine}, false
	return true
}

func (s *cohortState) release(e *event) bool {
	t, mine := s.of(e.hold)
	if mine == nil || mine.owner != e.op.owner {
		return false
	}
	switch {
	case e.op.number("left") > 0:
		mine.count--
	case t != &s.server:
		t.inside = hold{}
		return e.either && e.more
	case e.more:
		s.leave(t)
	default:
		s.server = tenure{}
	}
	return true
}

// toldLost: what was not held any more, or could not be trusted any more. Then the process knows.
func (s *cohortState) toldLost(e *event) bool {
	t, mine := s.of(e.hold)
	if mine == nil {
		return true
	}
	if t != &s.server {
		return s.learn(t.process)
	}
	s.leave(t)
	return e.late
}

func (s *cohortState) releasePerhaps(e *event) bool {
	t, mine := s.of(e.hold)
	if mine == nil {
		return true
	}
	if e.op.number("left") == 0 {
		s.leave(t)
	} else {
		mine.count--
		mine.unsure = true
	}
	return true
}

func (s *cohortState) isCount(owner string, count int64) bool {
	for _, t := range append([]tenure{s.server}, s.lost[:]...) {
		if t.inside.owner == owner {
			return t.inside.unsure || count == int64(t.inside.count) || count == 0 && t != s.server
		}
	}
	return count == 0
}

func (s *cohortState) breaks(answer bool) bool {
	if !answer {
		ok := s.isFree()
		s.server, s.loose = tenure{}, false
		return ok
	}
	ok := s.server.process != ""
	s.forget()
	return ok
}

func stepCohort(state interface{}, e *event) (bool, interface{}) {
	s := state.(cohortState)
	ok := s.happens(e)
	return ok, s
}

// happens changes the state, and says whether the event can happen in it.
func (s *cohortState) happens(e *event) bool {
	t, mine := s.of(e.hold)
	switch e.what {
	case "take":
		return s.take(e)
	case "take if free": // for somebody who is not there any more
		if !s.isFree() || s.server.process == e.op.process || s.lostOf(e.op.process) != nil {
			return false
		}
		s.server, s.loose = tenure{process: e.op.process}, true
	case "nest", "nest perhaps":
		if mine == nil {
			return e.what == "nest perhaps"
		}
		mine.count++
		mine.unsure = mine.unsure || e.what == "nest perhaps"
		return mine.unsure || integer(e.op.outs["count"]) == int64(mine.count)
	case "end":
		if mine == nil {
			return false
		}
		s.leave(t)
	case "learn":
		return s.learn(e.op.process)
	case "lost":
		return s.toldLost(e)
	case "release":
		return s.release(e)
	case "release perhaps":
		return s.releasePerhaps(e)
	case "not held":
		return mine == nil || e.late && e.hold != "-"
	case "extend":
		return mine != nil && (t == &s.server || e.either)
	case "is_locked":
		return e.op.value() == 1 && s.server.process != "" || e.op.value() == 0 && s.isFree()
	case "count":
		return s.isCount(e.op.owner, e.op.value())
	case "break":
		return s.breaks(e.op.value() == 1)
	case "break perhaps":
		return s.breaks(true)
	default:
		panic("a cohort has no " + e.what)
	}
	return true
}

// ---- What may have happened ----------------------------------------------------------------------

// passesOn: somebody else of the process waited while it was released.
func passesOn(o *op, ops []*op) bool {
	for _, other := range ops {
		if other.process == o.process && other.owner != o.owner && other.verb == "acquire" &&
			other.args["nested"] != "1" && other.call < o.ret && other.ret > o.call {
			return true
		}
	}
	return false
}

// mayBeLost: its tenure may have been broken or forgotten, and its process need not know: it does by the deadline.
func (b *builder) mayBeLost(o *op) bool {
	for _, broken := range b.breaks {
		if broken.call < o.ret && (broken.ret == forever || o.call < broken.ret+watchdog) {
			return true
		}
	}
	for _, w := range b.h.wipes {
		if w.from < o.ret && o.call < w.to+watchdog {
			return true
		}
	}
	return false
}

// refusedByCohort: somebody else must have come; or what the same owner has given up was still under way.
func (b *builder) refusedByCohort(o *op) {
	for _, other := range b.h.ops {
		if other.name == o.name && other.verb == "acquire" && other.call < o.ret &&
			(other.owner != o.owner || other != o && unknown[other.code]) {
			return
		}
	}
	b.impossible(o)
}

func (b *builder) cohortAcquire(o *op) {
	hold, nested := o.args["hold"], o.args["nested"] == "1"
	switch {
	case o.code == "HF_OK" && nested:
		b.whole(&event{what: "nest", op: o, hold: hold})
	case o.code == "HF_OK":
		b.whole(&event{what: "take", op: o, hold: o.id, either: b.mayBeLost(o)})
	case o.code == "HF_ELOST":
		b.whole(&event{what: "lost", op: o, hold: hold, late: b.isLate(hold, o)})
	case o.code == "HF_EBUSY" && !nested:
		b.refusedByCohort(o)
	case unknown[o.code] && nested:
		b.whole(&event{what: "nest perhaps", op: o, hold: hold})
	case unknown[o.code]:
		b.may(o.call, "given-up-"+o.process, &event{what: "take if free", op: o}, adds)
	default:
		b.impossible(o)
	}
}

func (b *builder) inCohort(o *op, ops []*op) {
	hold := o.args["hold"]
	e := &event{what: o.verb, op: o, hold: hold, late: b.isLate(hold, o), either: b.mayBeLost(o)}
	switch {
	case o.code == "HF_OK" && hold != "-":
		e.more = o.verb == "release" && passesOn(o, ops)
	case o.code == "HF_ELOST" && hold != "-":
		e.what = "lost"
	case o.code == "HF_ENOTOWNER":
		e.what = "not held"
	case unknown[o.code] && o.verb == "release":
		e.what = "release perhaps"
	case unknown[o.code]:
		return
	default:
		b.impossible(o)
		return
	}
	b.whole(e)
}

// learning: each process may find out what it has lost, at any time.
func (b *builder) learning(ops []*op) {
	for _, o := range ops {
		if b.mayBeLost(o) && b.chances["learn-"+o.process] == nil {
			b.may(o.call, "learn-"+o.process, &event{what: "learn", op: o}, ends)
		}
	}
}

func cohortEvents(h *history, ops []*op) []porcupine.Operation {
	b := &builder{h: h, unsettled: map[string]bool{}, chances: map[string]*chance{}}
	for _, o := range ops {
		if o.verb == "break" && (o.code != "HF_OK" || o.value() == 1) {
			b.breaks = append(b.breaks, o)
		}
	}
	begun, over, given := map[string]*op{}, map[string]bool{}, map[string]int64{}
	for _, o := range ops {
		switch o.verb {
		case "acquire":
			if o.code == "HF_OK" && o.args["nested"] != "1" {
				begun[o.id] = o
			}
			b.cohortAcquire(o)
		case "release", "extend":
			if o.verb == "release" && o.args["left"] == "0" && o.code == "HF_OK" {
				over[o.args["hold"]] = true
			} else if o.verb == "release" && o.args["left"] == "0" {
				b.give(o, o.args["hold"], given)
			}
			b.inCohort(o, ops)
		case "break":
			if o.code == "HF_OK" {
				b.whole(&event{what: "break", op: o})
			} else {
				b.may(o.call, "break", &event{what: "break perhaps", op: o}, breaks)
			}
		case "is_locked", "count":
			if o.code == "HF_OK" {
				b.whole(&event{what: o.verb, op: o})
			} else if !unknown[o.code] {
				b.impossible(o)
			}
		default:
			panic("what is " + o.verb + "?")
		}
	}
	b.ends(begun, over, given)
	b.learning(ops)
	b.wipes()
	b.over()
	return b.events
}
