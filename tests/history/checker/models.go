package main

import (
	"fmt"
	"sort"
	"strings"

	"github.com/anishathalye/porcupine"
)

// A model is what a kind is when nothing happens at the same time: docs/guarantees.md in a few
// lines. Its events are made of what was recorded; a step says whether an event can happen now.
type model struct {
	kind   string
	events func(h *history, ops []*op) []porcupine.Operation
	begin  func() interface{}
	step   func(state interface{}, e *event) (bool, interface{})
	wipe   func(state interface{}) interface{} // what is left when the server has forgotten everything
}

// Spin locks wait in another way than plain ones, and are the same.
var models = []model{
	{"plain", lockEvents, beginLock, lock{reentrant: true}.step, wipeLock},
	{"nonreentrant", lockEvents, beginLock, lock{}.step, wipeLock},
	{"spin", lockEvents, beginLock, lock{reentrant: true}.step, wipeLock},
	{"fenced", lockEvents, beginLock, lock{reentrant: true, tokens: true}.step, wipeLock},
	{"string", lockEvents, beginLock, lock{reentrant: true}.step, wipeLock},
	{"fair", lockEvents, beginLock, lock{reentrant: true}.step, wipeLock},
	{"group", lockEvents, beginSets, sets{}.step, wipeSets},
	{"multi", lockEvents, beginSets, sets{}.step, wipeSets},
	{"readwrite", lockEvents, beginLock, lock{reentrant: true}.step, wipeLock},
	{"semaphore", numberEvents, beginNumber, stepSemaphore, wipeNumber},
	{"permits", permitEvents, beginPermits, stepPermits, wipePermits},
	{"latch", numberEvents, beginNumber, stepLatch, wipeNumber},
	{"cohort", cohortEvents, beginCohort, stepCohort, wipeCohort},
	{"cohort_fair", cohortEvents, beginCohort, stepCohort, wipeCohort},
	{"cohort_string", cohortEvents, beginCohort, stepCohort, wipeCohort},
	{"quorum", lockEvents, beginLock, lock{reentrant: true}.step, wipeLock},
	{"quorum_string", lockEvents, beginLock, lock{reentrant: true}.step, wipeLock},
	{"quorum_once", lockEvents, beginLock, lock{}.step, wipeLock},
	{"quorum_fenced", lockEvents, beginLock, lock{reentrant: true, tokens: true, local: true}.step, wipeLock},
	{"session", lockEvents, beginLock, lock{reentrant: true}.step, wipeLock},
	{"session_once", lockEvents, beginLock, lock{}.step, wipeLock},
	{"session_fenced", lockEvents, beginLock, lock{reentrant: true, tokens: true, local: true}.step, wipeLock},
	{"session_readwrite", lockEvents, beginLock, lock{reentrant: true}.step, wipeLock},
	{"session_permits", permitEvents, beginPermits, stepPermits, wipePermits},
	{"moving", lockEvents, beginLock, lock{reentrant: true}.step, wipeLock},
	{"moving_once", lockEvents, beginLock, lock{}.step, wipeLock},
	{"moving_fenced", lockEvents, beginLock, lock{reentrant: true, tokens: true}.step, wipeLock},
	{"moving_fair", lockEvents, beginLock, lock{reentrant: true}.step, wipeLock},
	{"moving_string", lockEvents, beginLock, lock{reentrant: true}.step, wipeLock},
	{"moving_readwrite", lockEvents, beginLock, lock{reentrant: true}.step, wipeLock},
}

func modelOf(kind string) *model {
	for i := range models {
		if models[i].kind == kind {
			return &models[i]
		}
	}
	panic("no model of " + kind)
}

func (m *model) happens(at *place, e *event) bool {
	ok := true
	switch {
	case at.over:
	case e.what == "over":
		*at = place{over: true}
	case e.what == "impossible" || !at.done.comes(e):
		return false
	case e.what == "wipe":
		at.state = m.wipe(at.state)
	default:
		ok, at.state = m.step(at.state, e)
	}
	return ok
}

// A place is where an order has got to.
type place struct {
	state interface{}
	done  progress
	over  bool // the history is: what did not happen never does
}

// porcupine makes a model for one check. Places are kept once each and known by their address: there
// are few of them, and very many that refer to them.
func (m *model) porcupine() porcupine.Model {
	known := map[place]*place{}
	keep := func(at place) *place {
		kept, ok := known[at]
		if !ok {
			kept = &at
			known[at] = kept
		}
		return kept
	}
	return porcupine.Model{
		Init: func() interface{} { return keep(place{state: m.begin()}) },
		Step: func(state, input, output interface{}) (bool, interface{}) {
			next := *state.(*place)
			if !m.happens(&next, input.(*event)) {
				return false, state
			}
			return true, keep(next)
		},
		DescribeOperation: func(input, output interface{}) string {
			e := input.(*event)
			return fmt.Sprintf("%s: %s %s %s", e.what, e.op.owner, e.op.verb, e.op.code)
		},
		DescribeState: func(state interface{}) string { return fmt.Sprintf("%+v", state.(*place).state) },
	}
}

// ---- Semaphores and latches ----------------------------------------------------------------------

// All states can be compared, so sets are strings.
type numberState struct {
	there   bool
	number  int64
	inDoubt string // what acquires have taken that were given up
}

func beginNumber() interface{} { return numberState{} }

func wipeNumber(state interface{}) interface{} {
	return numberState{inDoubt: state.(numberState).inDoubt}
}

func with(set, word string) string {
	words := append(strings.Fields(set), word)
	sort.Strings(words)
	return strings.Join(words, " ") + " "
}

func without(set, word string) string { return strings.Replace(set, word+" ", "", 1) }

func has(set, word string) bool { return strings.Contains(set, word+" ") }

func stepSemaphore(state interface{}, e *event) (bool, interface{}) {
	s := state.(numberState)
	switch e.what {
	case "acquire":
		permits := e.op.number("permits")
		ok := s.number >= permits
		s.number -= permits
		return ok, s
	case "busy":
		return s.number < e.op.number("permits"), s
	case "take if there":
		permits := e.op.number("permits")
		if s.number < permits {
			return false, s
		}
		s.number -= permits
		s.inDoubt = with(s.inDoubt, e.hold)
	case "give if taken": // A semaphore that is gone stays gone.
		if !has(s.inDoubt, e.hold) {
			return false, s
		}
		s.inDoubt = without(s.inDoubt, e.hold)
		if s.there {
			s.number += e.op.number("permits")
		}
	case "release", "release perhaps":
		s.there = true
		s.number += e.op.number("permits")
	case "try_set", "try_set perhaps":
		was := s.there
		if !was {
			s.there, s.number = true, e.op.number("permits")
		}
		return e.what == "try_set perhaps" || (e.op.value() == 1) == !was, s
	case "available":
		return e.op.value() == s.number, s
	case "drain", "drain perhaps":
		was := s.number
		s.number = 0
		return e.what == "drain perhaps" || e.op.value() == was, s
	default:
		panic("a semaphore has no " + e.what)
	}
	return true, s
}

func stepLatch(state interface{}, e *event) (bool, interface{}) {
	s := state.(numberState)
	was := s.number
	switch e.what {
	case "await":
		return was == 0, s
	case "busy":
		return was > 0, s
	case "count_down", "count_down perhaps":
		if was > 0 {
			s.number--
		}
	case "try_set", "try_set perhaps":
		if was == 0 {
			s.number = e.op.number("permits")
		}
		return e.what == "try_set perhaps" || (e.op.value() == 1) == (was == 0), s
	case "delete", "delete perhaps":
		s.number = 0
		return e.what == "delete perhaps" || (e.op.value() == 1) == (was > 0), s
	case "count":
		return e.op.value() == was, s
	default:
		panic("a latch has no " + e.what)
	}
	return true, s
}

// ---- Permits -------------------------------------------------------------------------------------

type permitState struct {
	total int64
	there bool
	taken string
	count int64 // how many are taken
}

func beginPermits() interface{} { return permitState{} }

func wipePermits(interface{}) interface{} { return permitState{} }

func (s *permitState) take(id string) {
	s.taken = with(s.taken, id)
	s.count++
}

func (s *permitState) give(id string) bool {
	if !has(s.taken, id) {
		return false
	}
	s.taken = without(s.taken, id)
	s.count--
	return true
}

func stepPermits(state interface{}, e *event) (bool, interface{}) {
	s := state.(permitState)
	free := s.total - s.count
	switch e.what {
	case "acquire":
		for _, id := range ids(e.op.outs["ids"]) {
			if has(s.taken, id) {
				return false, s
			}
			s.take(id)
		}
		return free >= e.op.number("permits"), s
	case "busy":
		return free < e.op.number("permits"), s
	case "take if there":
		n := e.op.number("permits")
		if free < n {
			return false, s
		}
		for i := int64(0); i < n; i++ {
			s.take(e.hold)
		}
	case "end":
		return s.give(e.hold), s
	case "end given up":
		for i := int64(0); i < e.op.number("permits"); i++ {
			if !s.give(e.hold) {
				return false, s
			}
		}
	case "release":
		for _, id := range ids(e.op.args["ids"]) {
			if !s.give(id) {
				return false, s
			}
		}
	case "release late", "not there":
		missing := false
		for _, id := range ids(e.op.args["ids"]) {
			missing = missing || !has(s.taken, id)
			if e.what == "release late" {
				s.give(id)
			}
		}
		return missing || e.late, s
	case "extend":
		return has(s.taken, e.op.args["ids"]), s
	case "try_set", "try_set perhaps":
		was := s.there
		if !was {
			s.there, s.total = true, e.op.number("permits")
		}
		return e.what == "try_set perhaps" || (e.op.value() == 1) == !was, s
	case "available":
		return e.op.value() == free, s
	case "total":
		return e.op.value() == s.total, s
	case "taken":
		return e.op.value() == s.count, s
	default:
		panic("permits have no " + e.what)
	}
	return true, s
}
