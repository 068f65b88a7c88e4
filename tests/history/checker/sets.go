package main

import (
	"math/bits"
	"strings"
)

// Sets of values of which each has one holder at most, taken all or none: a group's, or locks that are
// taken together. Holds are kept at the place of their first value, so that there is one state for what
// is the same.
type sets struct{}

const setValues = 4

type setHold struct {
	hold
	mask   uint8
	broken bool // some of it was: the rest is given up when its client knows
}

type setState struct {
	of [setValues]setHold
}

func beginSets() interface{} { return setState{} }

func wipeSets(interface{}) interface{} { return setState{} }

// maskOf reads "a,c".
func maskOf(o *op) uint8 {
	var mask uint8
	for _, value := range strings.Split(o.args["values"], ",") {
		mask |= 1 << (value[0] - 'a')
	}
	return mask
}

func (s *setState) mine(owner string, mask uint8) *setHold {
	at := &s.of[bits.TrailingZeros8(mask)]
	if at.owner == owner && at.mask == mask {
		return at
	}
	return nil
}

// meets: whether somebody, or this owner, has any of them.
func (s *setState) meets(mask uint8, owner string) bool {
	for i := range s.of {
		if s.of[i].mask&mask != 0 && (owner == "" || s.of[i].owner == owner) {
			return true
		}
	}
	return false
}

func (s *setState) begin(mask uint8, h hold) {
	s.of[bits.TrailingZeros8(mask)] = setHold{hold: h, mask: mask}
}

func (s *setState) take(e *event, mask uint8) bool {
	if mine := s.mine(e.op.owner, mask); mine != nil && mine.inDoubt {
		*mine = setHold{} // Its residue is taken over.
	}
	if s.meets(mask, "") {
		return false
	}
	s.begin(mask, hold{owner: e.op.owner, id: e.hold, count: 1, unsure: e.more})
	return integer(e.op.outs["count"]) == 1 || e.more
}

func (s *setState) takeIfFree(e *event, mask uint8) bool {
	if s.meets(mask, "") {
		return false
	}
	s.begin(mask, hold{owner: e.op.owner, id: e.hold, inDoubt: true})
	return true
}

func (s *setState) end(id string) bool {
	for i := range s.of {
		if s.of[i].mask != 0 && s.of[i].id == id {
			s.of[i] = setHold{}
			return true
		}
	}
	return false
}

func nestSet(mine *hold, e *event) bool {
	if mine == nil || mine.inDoubt || mine.id != e.hold {
		return false
	}
	mine.count++
	return mine.unsure || integer(e.op.outs["count"]) == int64(mine.count)
}

func (s *setState) release(mine *setHold, e *event) bool {
	if mine == nil || mine.id != e.hold || mine.inDoubt {
		return false
	}
	if e.op.number("left") == 0 {
		*mine = setHold{}
	} else {
		mine.count--
	}
	return true
}

// breakValue takes one value from its holder; nobody believes in that hold any more.
func (s *setState) breakValue(mask uint8) bool {
	for i := range s.of {
		h := s.of[i]
		if h.mask&mask == 0 {
			continue
		}
		s.of[i] = setHold{}
		h.mask &^= mask
		h.inDoubt, h.broken = true, true
		if h.mask != 0 {
			s.of[bits.TrailingZeros8(h.mask)] = h
		}
		return true
	}
	return false
}

// giveUp: what is left of a hold that was broken goes, too.
func (s *setState) giveUp(id string) bool {
	for i := range s.of {
		if s.of[i].broken && s.of[i].id == id {
			s.of[i] = setHold{}
			return true
		}
	}
	return false
}

// waitsForItself: the owner has some of these together with others, or could not trust that any more.
func (s *setState) waitsForItself(e *event, mask uint8) bool {
	return s.meets(mask, e.op.owner) || e.op.args["beside"] != "-" && e.late
}

// isSetCount: of a set that shares some values with one that is held, nothing is said.
func (s *setState) isSetCount(mine *hold, e *event, mask uint8) bool {
	return isCount(mine, e.op.value()) || mine == nil && s.meets(mask, e.op.owner)
}

func (sets) step(state interface{}, e *event) (bool, interface{}) {
	s := state.(setState)
	switch e.what {
	case "end":
		return s.end(e.hold), s
	case "give up":
		return s.giveUp(e.hold), s
	case "break value":
		return s.breakValue(e.mask), s
	}
	ok := s.happens(e, e.mask)
	return ok, s
}

// happens changes the state, and says whether the event can happen in it.
func (s *setState) happens(e *event, mask uint8) bool {
	var mine *hold
	place := s.mine(e.op.owner, mask)
	if place != nil {
		mine = &place.hold
	}
	isMine := mine != nil && !mine.inDoubt
	switch e.what {
	case "take":
		return s.take(e, mask)
	case "take if free":
		return s.takeIfFree(e, mask)
	case "nest":
		return nestSet(mine, e)
	case "nest perhaps":
		if mine != nil {
			mine.unsure = true
		}
		return true
	case "busy":
		return mine == nil && s.meets(mask, "")
	case "lost":
		return lostOrNot(mine, e)
	case "would wait for itself":
		return s.waitsForItself(e, mask)
	case "release":
		return s.release(place, e)
	case "release perhaps":
		return releasePerhaps(mine, e)
	case "not held":
		return !isMine || e.late && e.hold != "-"
	case "extend", "trust":
		return isMine && mine.id == e.hold
	case "is_locked":
		return s.meets(mask, "") == (e.op.value() == 1)
	case "count":
		return s.isSetCount(mine, e, mask)
	case "nothing to break":
		return !s.meets(mask, "")
	default:
		panic("a set has no " + e.what)
	}
}
