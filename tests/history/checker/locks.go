package main

import "strings"

// A lock of any kind: exclusive ones are read/write locks that are only written, and fair ones have
// a line. Each hold has the operation that began it as its name, so that the end of one is not taken
// for the end of the next.
type lock struct {
	reentrant bool
	tokens    bool
}

// maxReaders is more than there are players.
const maxReaders = 24

type hold struct {
	owner, id string
	count     int
	unsure    bool // its count: a nested acquire or release failed
	ghost     bool // nobody believes in it; the server may still have it
	granted   bool // a fair lock's: its owner has not been told yet
}

type lockState struct {
	writer  hold
	readers [maxReaders]hold // sorted by owner, none in the end
	token   int64
	line    string // of a fair lock: "owner#id " of each waiter
}

func beginLock() interface{} { return lockState{} }

func (s *lockState) of(side, owner string) *hold {
	if side == "_write" {
		if s.writer.owner == owner {
			return &s.writer
		}
		return nil
	}
	for i := range s.readers {
		if s.readers[i].owner == owner {
			return &s.readers[i]
		}
	}
	return nil
}

func (s *lockState) addReader(h hold) {
	at := 0
	for at < maxReaders && s.readers[at].owner != "" && s.readers[at].owner < h.owner {
		at++
	}
	if s.readers[maxReaders-1].owner != "" {
		panic("more readers than there is room for")
	}
	copy(s.readers[at+1:], s.readers[at:maxReaders-1])
	s.readers[at] = h
}

func (s *lockState) dropReader(h *hold) {
	for i := range s.readers {
		if &s.readers[i] == h {
			copy(s.readers[i:], s.readers[i+1:])
			s.readers[maxReaders-1] = hold{}
			return
		}
	}
}

// free ends a hold; of a fair lock the next in line is granted it.
func (s *lockState) free(h *hold) {
	if h != &s.writer {
		s.dropReader(h)
		return
	}
	s.writer = hold{}
	s.grant()
}

func (s *lockState) grant() {
	if s.writer.owner != "" || s.line == "" {
		return
	}
	end := strings.IndexByte(s.line, ' ')
	name := strings.IndexByte(s.line, '#')
	s.writer = hold{owner: s.line[:name], id: s.line[name+1 : end], granted: true}
	s.line = s.line[end+1:]
}

// isFree: whether this owner, who does not hold that side, could have it.
func (s *lockState) isFree(side, owner string) bool {
	writes := s.writer.owner == owner
	if s.writer.owner != "" && !writes {
		return false
	}
	return side == "_read" || writes || s.readers[0].owner == ""
}

func (s *lockState) begin(side string, h hold) {
	if side == "_write" {
		s.writer = h
	} else {
		s.addReader(h)
	}
}

// end says whether there was something to end.
func (s *lockState) end(id string) bool {
	if s.writer.id == id && s.writer.owner != "" {
		s.free(&s.writer)
		return true
	}
	for i := range s.readers {
		if s.readers[i].owner != "" && s.readers[i].id == id {
			s.dropReader(&s.readers[i])
			return true
		}
	}
	return false
}

func (l lock) draw(s *lockState, e *event) bool {
	if !l.tokens {
		return true
	}
	token := integer(e.op.outs["token"])
	ok := token > s.token
	s.token = token
	return ok
}

func (l lock) take(s *lockState, e *event) bool {
	if mine := s.of(e.side, e.op.owner); mine != nil {
		if !mine.ghost && !mine.granted {
			return false
		}
		*mine = hold{owner: e.op.owner, id: e.hold, count: 1} // Its leftover is taken over.
	} else if !s.isFree(e.side, e.op.owner) {
		return false
	} else {
		s.begin(e.side, hold{owner: e.op.owner, id: e.hold, count: 1})
	}
	return integer(e.op.outs["count"]) == 1 && l.draw(s, e)
}

func (l lock) nest(s *lockState, e *event) bool {
	mine := s.of(e.side, e.op.owner)
	if mine == nil || mine.ghost || mine.id != e.hold || !l.reentrant {
		return false
	}
	mine.count++
	return (mine.unsure || integer(e.op.outs["count"]) == int64(mine.count)) && l.draw(s, e)
}

// ---- The line of a fair lock ---------------------------------------------------------------------

func (s *lockState) stand(e *event) {
	place := e.op.owner + "#" + e.hold
	if has(s.line, place) || s.writer.id == e.hold {
		return
	}
	if s.writer.owner == e.op.owner && (s.writer.ghost || s.writer.granted) {
		s.writer = hold{owner: e.op.owner, id: e.hold, granted: true}
		return
	}
	s.line = with(s.line, place)
	s.grant()
}

func (s *lockState) leave(e *event) {
	s.line = without(s.line, e.op.owner+"#"+e.hold)
	if s.writer.id == e.hold && s.writer.granted {
		s.free(&s.writer)
	}
}

// isSeen: whether the server's holder and line are these. Who was granted the lock holds it (ours)
// or is still the first in line (Java's).
func (s *lockState) isSeen(holder, queue string) bool {
	var line []string
	for _, place := range strings.Fields(s.line) {
		line = append(line, place[:strings.IndexByte(place, '#')])
	}
	waiting := strings.Join(line, ",")
	if !s.writer.granted || holder != "" {
		return holder == s.writer.owner && queue == waiting
	}
	return queue == strings.Join(append([]string{s.writer.owner}, line...), ",")
}

// ---- Steps ---------------------------------------------------------------------------------------

func (s *lockState) isLocked(side string) bool {
	if side == "_read" {
		return s.readers[0].owner != ""
	}
	return s.writer.owner != ""
}

func (s *lockState) breakSide(side string) {
	writer := s.writer.owner
	for i := 0; i < maxReaders && s.readers[i].owner != ""; {
		if side == "_read" || s.readers[i].owner == writer {
			s.dropReader(&s.readers[i])
		} else {
			i++
		}
	}
	if side == "_write" && writer != "" {
		s.free(&s.writer)
	}
}

// lostOrNot: a hold that was not held any more, or could not be trusted any more. In the second case
// the server may still have it.
func lostOrNot(mine *hold, e *event) bool {
	if mine == nil || mine.id != e.hold || mine.ghost {
		return true
	}
	mine.ghost = true
	return e.late
}

func (s *lockState) release(mine *hold, e *event) bool {
	if mine == nil || mine.id != e.hold || mine.ghost {
		return false
	}
	if e.op.number("left") == 0 {
		s.free(mine)
	} else {
		mine.count--
	}
	return true
}

func releasePerhaps(mine *hold, e *event) {
	if mine == nil || mine.id != e.hold {
		return
	}
	if e.op.number("left") == 0 {
		mine.ghost = true
	} else {
		mine.count--
		mine.unsure = true
	}
}

func (l lock) step(state interface{}, e *event) (bool, interface{}) {
	s := state.(lockState)
	mine := s.of(e.side, e.op.owner)
	ok := true
	switch e.what {
	case "take":
		ok = l.take(&s, e)
	case "take granted":
		ok = s.writer.id == e.hold && s.writer.granted
		s.writer = hold{owner: e.op.owner, id: e.hold, count: 1}
	case "nest":
		ok = l.nest(&s, e)
	case "nest perhaps":
		if mine != nil {
			mine.unsure = true
		}
	case "take if free":
		if mine == nil && s.isFree(e.side, e.op.owner) {
			s.begin(e.side, hold{owner: e.op.owner, id: e.hold, ghost: true})
		} else {
			ok = !e.must
		}
	case "busy":
		ok = mine == nil && !s.isFree(e.side, e.op.owner)
	case "stand":
		s.stand(e)
	case "leave":
		s.leave(e)
	case "end":
		ok = s.end(e.hold) || !e.must
	case "lost":
		ok = lostOrNot(mine, e)
	case "would wait for itself":
		ok = !l.reentrant || s.of("_read", e.op.owner) != nil || e.late
	case "release":
		ok = s.release(mine, e)
	case "release perhaps":
		releasePerhaps(mine, e)
	case "not held":
		ok = e.late && e.hold != "-" || mine == nil || mine.ghost
	case "extend":
		ok = mine != nil && !mine.ghost && mine.id == e.hold
	case "is_locked":
		ok = s.writer.granted || s.isLocked(e.side) == (e.op.value() == 1)
	case "count":
		count := 0
		if mine != nil {
			count = mine.count
		}
		ok = mine != nil && (mine.ghost || mine.unsure || mine.granted) || e.op.value() == int64(count)
	case "break":
		ok = s.writer.granted || s.isLocked(e.side) == (e.op.value() == 1)
		s.breakSide(e.side)
	case "break perhaps":
		s.breakSide(e.side)
	case "look":
		ok = s.isSeen(e.op.outs["holder"], e.op.outs["queue"])
	default:
		panic("a lock has no " + e.what)
	}
	return ok, s
}
