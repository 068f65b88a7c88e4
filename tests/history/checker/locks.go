package main

import (
	"fmt"
	"strings"
)

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
	unsure    bool   // its count: a nested acquire or release failed
	ghost     bool   // nobody believes in it; the server may still have it
	granted   string // a fair lock's whose owner has not been told yet: its place in line
}

// All of it can be compared, so sets are strings, of words that end in a blank.
type lockState struct {
	writer  hold
	readers [maxReaders]hold // sorted by owner, none in the end
	token   int64
	line    string // of a fair lock, the first in line first: a place each
	came    int    // how many have stood in line
	away    string // places of those who were taken out of the line, and wait
	trips   string // a word for each event of such a trip
	served  string // those who do not wait any more
	gone    string // holds that were ended by others
}

func beginLock() interface{} { return lockState{} }

func wipeLock(state interface{}) interface{} {
	s := state.(lockState)
	for _, place := range strings.Fields(s.line) {
		s.away = with(s.away, place)
	}
	s.line = ""
	s.forget(&s.writer)
	for s.readers[0].owner != "" {
		s.forget(&s.readers[0])
	}
	return lockState{came: s.came, away: s.away, trips: s.trips, served: s.served, gone: s.gone}
}

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

// drop ends a hold, and nothing more.
func (s *lockState) drop(h *hold) {
	if h == &s.writer {
		s.writer = hold{}
		return
	}
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
	s.drop(h)
	s.grant()
}

// forget ends a hold that its owner knows nothing of.
func (s *lockState) forget(h *hold) {
	if h.granted != "" {
		s.away = with(s.away, h.granted)
	} else if h.owner != "" {
		s.gone = with(s.gone, h.id)
	}
	s.drop(h)
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
			s.drop(&s.readers[i])
			return true
		}
	}
	ended := has(s.gone, id)
	s.gone = without(s.gone, id)
	return ended
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
		if !mine.ghost && mine.granted == "" {
			return false
		}
		s.forget(mine) // Its leftover is taken over.
	} else if !s.isFree(e.side, e.op.owner) {
		return false
	}
	s.begin(e.side, hold{owner: e.op.owner, id: e.hold, count: 1})
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

// A place is "owner#operation#number#java", so that those who come back find it again.
func placeOf(o *op, number int) string {
	return fmt.Sprintf("%s#%s#%d#%t", o.owner, o.id, number, o.process == "driver")
}

func part(place string, i int) string { return strings.Split(place, "#")[i] }

// placeIn is the place of an operation in a set, or "".
func placeIn(set, id string) string {
	for _, place := range strings.Fields(set) {
		if part(place, 1) == id {
			return place
		}
	}
	return ""
}

func (s *lockState) grant() {
	if s.writer.owner != "" || s.line == "" {
		return
	}
	place := s.line[:strings.IndexByte(s.line, ' ')]
	s.line = s.line[len(place)+1:]
	s.writer = hold{owner: part(place, 0), id: part(place, 1), granted: place}
}

func (s *lockState) stand(e *event) {
	place := placeOf(e.op, s.came)
	s.came++
	if s.writer.owner == e.op.owner && (s.writer.ghost || s.writer.granted != "") {
		s.forget(&s.writer)
		s.writer = hold{owner: e.op.owner, id: e.hold, granted: place}
		return
	}
	s.line += place + " "
	s.grant()
}

// takeOut takes a waiter out of the line, and says where it stood: "" if it did not.
func (s *lockState) takeOut(id string) string {
	if place := placeIn(s.line, id); place != "" {
		s.line = without(s.line, place)
		return place
	}
	if s.writer.id == id && s.writer.granted != "" {
		place := s.writer.granted
		s.free(&s.writer)
		return place
	}
	return ""
}

func (s *lockState) leave(id string) bool {
	s.served = with(s.served, id)
	if place := placeIn(s.away, id); place != "" {
		s.away = without(s.away, place)
		return true
	}
	return s.takeOut(id) != ""
}

// isNext: the events of a waiter's trips come one after the other, and what did not happen counts as
// happened when it is served: there is one order for that, and not many.
func (s *lockState) isNext(e *event, from, to int) bool {
	done := strings.Count(s.trips, e.hold+" ") - 3*e.trip
	s.trips = with(s.trips, e.hold)
	return done >= from && done <= to
}

// passOver: by whoever hands over, or because the server has forgotten the line.
func (s *lockState) passOver(e *event) bool {
	if !s.isNext(e, 0, 0) {
		return false
	}
	if placeIn(s.away, e.hold) != "" || has(s.served, e.hold) {
		return true
	}
	place := s.takeOut(e.hold)
	s.away = with(s.away, place)
	return place != ""
}

// comeBack puts one who was taken out of the line at its end, or in front of the first who is Java's
// or came later: one of the two, and then the other does nothing.
func (s *lockState) comeBack(e *event, atEnd bool) bool {
	isOther := s.isNext(e, 2, 2)
	if !isOther && strings.Count(s.trips, e.hold+" ") != 3*e.trip+2 {
		return false
	}
	place := placeIn(s.away, e.hold)
	if isOther || place == "" {
		return isOther || has(s.served, e.hold)
	}
	s.away = without(s.away, place)
	places := strings.Fields(s.line)
	at := len(places)
	for i := 0; !atEnd && i < at; i++ {
		if part(places[i], 3) == "true" || integer(part(places[i], 2)) > integer(part(place, 2)) {
			at = i
		}
	}
	s.line = ""
	for i, other := range places {
		if i == at {
			s.line += place + " "
		}
		s.line += other + " "
	}
	if at == len(places) {
		s.line += place + " "
	}
	s.grant()
	return true
}

// isSeen: whether the server's holder and line are these. Who was granted the lock holds it (ours)
// or is still the first in line (Java's).
func (s *lockState) isSeen(holder, queue string) bool {
	var line []string
	for _, place := range strings.Fields(s.line) {
		line = append(line, part(place, 0))
	}
	if s.writer.granted == "" || holder != "" {
		return holder == s.writer.owner && queue == strings.Join(line, ",")
	}
	return queue == strings.Join(append([]string{s.writer.owner}, line...), ",")
}

// ---- Steps ---------------------------------------------------------------------------------------

// isLocked says yes or no, as was answered, of a lock that is granted: both may be seen.
func (s *lockState) isLocked(side string, answer bool) bool {
	if s.writer.granted != "" {
		return answer
	}
	if side == "_read" {
		return s.readers[0].owner != ""
	}
	return s.writer.owner != ""
}

func (s *lockState) breakSide(side string) bool {
	writer := s.writer.owner
	for i := 0; i < maxReaders && s.readers[i].owner != ""; {
		if side == "_read" || s.readers[i].owner == writer {
			s.forget(&s.readers[i])
		} else {
			i++
		}
	}
	if side == "_write" && writer != "" {
		s.forget(&s.writer)
		s.grant()
	}
	return true
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

func releasePerhaps(mine *hold, e *event) bool {
	if mine == nil || mine.id != e.hold {
		return true
	}
	if e.op.number("left") == 0 {
		mine.ghost = true
	} else {
		mine.count--
		mine.unsure = true
	}
	return true
}

func (s *lockState) takeIfFree(mine *hold, e *event) bool {
	if mine != nil || !s.isFree(e.side, e.op.owner) {
		return false
	}
	s.begin(e.side, hold{owner: e.op.owner, id: e.hold, ghost: true})
	return true
}

func (s *lockState) takeGranted(e *event) bool {
	if s.writer.id != e.hold || s.writer.granted == "" {
		return false
	}
	s.writer = hold{owner: e.op.owner, id: e.hold, count: 1}
	s.served = with(s.served, e.hold)
	return true
}

func isCount(mine *hold, count int64) bool {
	if mine == nil {
		return count == 0
	}
	return mine.ghost || mine.unsure || mine.granted != "" || count == int64(mine.count)
}

func (l lock) step(state interface{}, e *event) (bool, interface{}) {
	s := state.(lockState)
	ok := l.happens(&s, s.of(e.side, e.op.owner), e)
	return ok, s
}

// happens changes the state, and says whether the event can happen in it.
func (l lock) happens(s *lockState, mine *hold, e *event) bool {
	isMine := mine != nil && !mine.ghost && mine.granted == ""
	switch e.what {
	case "take":
		return l.take(s, e)
	case "take granted":
		return s.takeGranted(e)
	case "take if free":
		return s.takeIfFree(mine, e)
	case "nest":
		return l.nest(s, e)
	case "nest perhaps":
		if mine != nil {
			mine.unsure = true
		}
		return true
	case "busy":
		return mine == nil && !s.isFree(e.side, e.op.owner)
	case "stand":
		s.stand(e)
		return true
	case "leave":
		return s.leave(e.hold)
	case "passed over":
		return s.passOver(e)
	case "back at its place", "back at the end":
		return s.comeBack(e, e.what == "back at the end")
	case "end":
		return s.end(e.hold)
	case "lost":
		return lostOrNot(mine, e)
	case "would wait for itself":
		return !l.reentrant || s.of("_read", e.op.owner) != nil || e.late
	case "release":
		return s.release(mine, e)
	case "release perhaps":
		return releasePerhaps(mine, e)
	case "not held":
		return !isMine || e.late && e.hold != "-"
	case "extend":
		return isMine && mine.id == e.hold
	case "is_locked":
		answer := e.op.value() == 1
		return s.isLocked(e.side, answer) == answer
	case "count":
		return isCount(mine, e.op.value())
	case "break":
		answer := e.op.value() == 1
		return s.isLocked(e.side, answer) == answer && s.breakSide(e.side)
	case "break perhaps":
		return s.breakSide(e.side)
	case "look":
		return s.isSeen(e.op.outs["holder"], e.op.outs["queue"])
	default:
		panic("a lock has no " + e.what)
	}
}
