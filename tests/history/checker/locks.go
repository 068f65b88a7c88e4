package main

import "strings"

// A lock of any kind: exclusive ones are read/write locks that are only written, and fair ones have
// a line. Each hold has the operation that began it as its name, so that the end of one is not taken
// for the end of the next.
type lock struct {
	reentrant bool
	tokens    bool
	local     bool // nesting asks no server, so it draws no token
}

// maxReaders is more than there are players.
const maxReaders = 24

type hold struct {
	owner, id string
	count     int
	unsure    bool // its count: a nested acquire or release failed
	inDoubt   bool // no client counts on it; the server may still have it
	granted   bool // a fair lock's, whose owner has not been notified yet
	free      bool // of the line: it may have been granted for longer than is known
}

// All of it can be compared, so sets are strings, of words that end in a blank.
type lockState struct {
	writer  hold
	readers [maxReaders]hold // sorted by owner, none in the end
	token   int64
	line    string // of a fair lock, the first in line first: "owner#operation" each
}

func beginLock() interface{} { return lockState{} }

func wipeLock(interface{}) interface{} { return lockState{} }

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

// drop ends a hold; nobody is granted anything for that.
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
		if !mine.inDoubt && !mine.granted {
			return false
		}
		s.drop(mine) // Its residue is taken over.
	} else if s.comesBefore(e); !s.isFree(e.side, e.op.owner) {
		return e.either && l.draw(s, e) // at the primary that is none any more
	}
	s.begin(e.side, hold{owner: e.op.owner, id: e.hold, count: 1, free: e.free})
	return integer(e.op.outs["count"]) == 1 && l.draw(s, e)
}

func (l lock) nest(s *lockState, e *event) bool {
	mine := s.of(e.side, e.op.owner)
	if mine == nil || mine.inDoubt || mine.id != e.hold || !l.reentrant {
		return false
	}
	mine.count++
	return (mine.unsure || integer(e.op.outs["count"]) == int64(mine.count)) && (l.local || l.draw(s, e))
}

// ---- The line of a fair lock ---------------------------------------------------------------------

func ownerOf(place string) string { return place[:strings.IndexByte(place, '#')] }

func operationOf(place string) string { return place[strings.IndexByte(place, '#')+1:] }

func (s *lockState) grant() {
	if s.writer.owner != "" || s.line == "" {
		return
	}
	place := s.line[:strings.IndexByte(s.line, ' ')]
	s.line = s.line[len(place)+1:]
	s.writer = hold{owner: ownerOf(place), id: operationOf(place), granted: true}
}

// stand: of the owners that may have, none does twice.
func (s *lockState) stand(e *event) bool {
	if e.chance != nil && strings.Contains(" "+s.line, " "+e.op.owner+"#") {
		return false
	}
	if s.writer.owner == e.op.owner && (s.writer.inDoubt || s.writer.granted) {
		s.drop(&s.writer)
		s.writer = hold{owner: e.op.owner, id: e.hold, granted: true}
		return true
	}
	s.line += e.op.owner + "#" + e.hold + " "
	s.grant()
	return true
}

// leave says whether there was somebody to leave.
func (s *lockState) leave(e *event) bool {
	place := e.op.owner + "#" + e.hold
	if has(s.line, place) {
		s.line = without(s.line, place)
		return true
	}
	return s.end(e.hold)
}

// comesBefore: an owner outside the queue may have been in front of the one that is granted the lock.
func (s *lockState) comesBefore(e *event) {
	if e.free && s.writer.granted {
		s.line = s.writer.owner + "#" + s.writer.id + " " + s.line
		s.writer = hold{}
	}
}

// isSeen: whether the server's holder and line are these. Who was granted the lock holds it (ours)
// or is still the first in line (Java's).
func (s *lockState) isSeen(e *event) bool {
	holder, queue := e.op.outs["holder"], e.line
	var line []string
	for _, place := range strings.Fields(s.line) {
		if !has(e.unknown, ownerOf(place)) {
			line = append(line, ownerOf(place))
		}
	}
	waiting := strings.Join(line, ",")
	if s.writer.free || s.writer.inDoubt {
		return queue == waiting
	}
	if !s.writer.granted || holder != "" {
		return holder == s.writer.owner && queue == waiting
	}
	if has(e.unknown, s.writer.owner) {
		return queue == waiting
	}
	return queue == strings.Join(append([]string{s.writer.owner}, line...), ",")
}

// ---- Steps ---------------------------------------------------------------------------------------

// isLocked says yes or no, as was answered, of a lock that is granted: both may be seen.
func (s *lockState) isLocked(side string, answer bool) bool {
	if s.writer.granted || s.writer.free {
		return answer
	}
	if side == "_read" {
		return s.readers[0].owner != ""
	}
	return s.writer.owner != ""
}

// breakSide: a writer that also reads is not broken by its reads.
func (s *lockState) breakSide(side string, answer bool) bool {
	writer := s.writer.owner
	if side == "_read" && writer != "" {
		return !answer
	}
	if s.isLocked(side, answer) != answer || !answer {
		return !answer
	}
	for i := 0; i < maxReaders && s.readers[i].owner != ""; {
		if side == "_read" || s.readers[i].owner == writer {
			s.drop(&s.readers[i])
		} else {
			i++
		}
	}
	if side == "_write" && writer != "" {
		s.drop(&s.writer)
		s.grant()
	}
	return true
}

// lostOrNot: a hold that was not held any more, or could not be trusted any more. In the second case
// the server may still have it.
func lostOrNot(mine *hold, e *event) bool {
	if mine == nil || mine.id != e.hold || mine.inDoubt {
		return true
	}
	mine.inDoubt = true
	return e.late
}

func (s *lockState) release(mine *hold, e *event) bool {
	if mine == nil || mine.id != e.hold || mine.inDoubt {
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
		mine.inDoubt = true
	} else {
		mine.count--
		mine.unsure = true
	}
	return true
}

func (s *lockState) takeIfFree(mine *hold, e *event) bool {
	s.comesBefore(e)
	if mine != nil || !s.isFree(e.side, e.op.owner) {
		return false
	}
	s.begin(e.side, hold{owner: e.op.owner, id: e.hold, inDoubt: true, free: e.free})
	return true
}

func (s *lockState) takeGranted(e *event) bool {
	if s.writer.id != e.hold || !s.writer.granted {
		return false
	}
	s.writer = hold{owner: e.op.owner, id: e.hold, count: 1}
	return true
}

func isCount(mine *hold, count int64) bool {
	if mine == nil {
		return count == 0
	}
	return mine.inDoubt || mine.unsure || mine.granted || mine.free || count == int64(mine.count)
}

// isStored: of a hold that its client has lost, the servers of a quorum still say 1, however often it was nested.
// So nobody believes in it any more.
func isStored(mine *hold, e *event) bool {
	if !e.late || mine == nil || mine.id != e.hold || e.op.value() != 1 {
		return false
	}
	mine.inDoubt = true
	return true
}

func (l lock) step(state interface{}, e *event) (bool, interface{}) {
	s := state.(lockState)
	ok := l.happens(&s, s.of(e.side, e.op.owner), e)
	return ok, s
}

// happens changes the state, and says whether the event can happen in it.
func (l lock) happens(s *lockState, mine *hold, e *event) bool {
	isMine := mine != nil && !mine.inDoubt && !mine.granted
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
		return s.stand(e)
	case "leave":
		return s.leave(e)
	case "end":
		return s.end(e.hold)
	case "lost":
		return lostOrNot(mine, e)
	case "would wait for itself":
		return !l.reentrant || s.of("_read", e.op.owner) != nil || e.late
	case "release":
		return s.release(mine, e)
	case "release at either":
		s.release(mine, e)
		return true
	case "release perhaps":
		return releasePerhaps(mine, e)
	case "not held":
		return !isMine || e.late && e.hold != "-"
	case "extend", "trust":
		return isMine && mine.id == e.hold
	case "is_locked":
		answer := e.op.value() == 1
		return s.isLocked(e.side, answer) == answer
	case "count":
		return isCount(mine, e.op.value()) || isStored(mine, e)
	case "break":
		return s.breakSide(e.side, e.op.value() == 1)
	case "break perhaps":
		return s.breakSide(e.side, true)
	case "look":
		return s.isSeen(e)
	default:
		panic("a lock has no " + e.what)
	}
}
