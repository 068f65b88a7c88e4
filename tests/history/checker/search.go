package main

import (
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// What may have happened or not, nobody knows when, would be an event at any later time to Porcupine, and of
// thirty such there are a billion sets that may have come so far. Here each is a chance that is there from
// some moment on. It is taken only right before an event that needs it: taken earlier, it would have changed
// nothing but what can still be done. And of two orders that have got to the same place, by the same
// answers, the one that has taken fewer chances can do whatever the other can.

// A use is what a chance is good for.
type use int

const (
	ends   use = iota // one hold of all that there are, so it need not be counted
	breaks            // whatever hold is there
	adds              // a hold that nobody believes in
	stands            // somebody in line, who will leave
)

// A chance is a sort of things that may happen, of which it makes no difference which one does.
type chance struct {
	event *event
	use   use
	index int
	from  []int64 // each of them
}

// may is something that happens some time after `from`, or never. Those of one sort are the same.
func (b *builder) may(from int64, sort string, e *event, use use) {
	c := b.chances[sort]
	if c == nil && b.chances != nil {
		c = &chance{event: e, use: use, index: len(b.chances)}
		b.chances[sort] = c
	}
	if c != nil {
		c.from = append(c.from, from)
		e.chance = c
	}
	b.ever(from, e)
}

// A world is what may be true now. Chances that were taken are counted, one byte for each sort.
type world struct {
	place
	taken string
}

type search struct {
	model   *model
	until   map[string]int64      // when the queued waiters have left
	events  []porcupine.Operation // that were answered, by their ends
	chances []*chance
	came    []string // see cameBy
	places  map[place]int
	seen    map[string][]string // by what has come and where that leads: the chances that were taken
	end     time.Time
	again   bool // a chance can be taken again and again
}

func newSearch(m *model, events []porcupine.Operation, within time.Duration) *search {
	s := &search{model: m, until: map[string]int64{}, places: map[place]int{}, seen: map[string][]string{},
		end: time.Now().Add(within)}
	known := map[*chance]bool{}
	for _, o := range events {
		c := o.Input.(*event).chance
		if c == nil {
			s.events = append(s.events, o)
		} else if !known[c] {
			known[c] = true
			if c.use == stands {
				s.until[c.event.hold] = c.event.until
			}
			s.chances = append(s.chances, c)
		}
	}
	sort.SliceStable(s.events, func(i, j int) bool { return s.events[i].Return < s.events[j].Return })
	sort.Slice(s.chances, func(i, j int) bool { return s.chances[i].index < s.chances[j].index })
	s.came = make([]string, len(s.events))
	return s
}

// cameBy is how many chances of each sort there were when an event had to be over.
func (s *search) cameBy(last int) string {
	if s.came[last] != "" {
		return s.came[last]
	}
	counts := make([]byte, len(s.chances))
	for i, c := range s.chances {
		for _, from := range c.from {
			if from <= s.events[last].Return && counts[i] < 255 {
				counts[i]++
			}
		}
	}
	s.came[last] = string(counts)
	return s.came[last]
}

// isNew: no order has been at the same place with as many chances left.
func (s *search) isNew(done []byte, w world) bool {
	number, ok := s.places[w.place]
	if !ok {
		number = len(s.places)
		s.places[w.place] = number
	}
	key := string(done) + strconv.Itoa(number)
	for _, taken := range s.seen[key] {
		if fewer(taken, w.taken) {
			return false
		}
	}
	s.seen[key] = append(s.seen[key], w.taken)
	return true
}

// goesOn: there is an order of the events that are left. The next is one of those that were called before
// the first of them had returned.
func (s *search) goesOn(done []byte, w world) bool {
	first := 0
	for first < len(done) && done[first] == 1 {
		first++
	}
	if first == len(done) || s.events[first].Return == forever {
		return true
	}
	var looks, others []int
	for i := first; i < len(done); i++ {
		if done[i] == 1 || s.events[i].Call > s.events[first].Return {
			continue
		}
		if onlyLooks[s.events[i].Input.(*event).what] {
			looks = append(looks, i)
		} else {
			others = append(others, i)
		}
	}
	came := s.cameBy(first)
	for _, i := range append(looks, others...) {
		goesOn := func(next world) bool { return s.isNew(done, next) && s.goesOn(done, next) }
		if s.goesWith(done, i, func() bool { return s.explain(w, came, s.events[i], goesOn) }) {
			return true
		}
	}
	return false
}

// onlyLooks has what never changes anything. It is tried first: after a change, many chances may be tried in vain.
var onlyLooks = map[string]bool{"look": true, "busy": true, "is_locked": true, "not held": true}

func (s *search) goesWith(done []byte, i int, on func() bool) bool {
	done[i] = 1
	ok := time.Now().Before(s.end) && on()
	done[i] = 0
	return ok
}

func (s *search) happens(w world, e *event) (world, bool) {
	ok := s.model.happens(&w.place, e)
	return w, ok
}

// take is the world after something happened that may have.
func (s *search) take(w world, came string, c *chance) (world, bool) {
	if w.taken[c.index] >= came[c.index] {
		return w, false
	}
	next, ok := s.happens(w, c.event)
	if ok && c.use != ends && (!s.again || c.use == stands) {
		taken := []byte(w.taken)
		taken[c.index]++
		next.taken = string(taken)
	}
	return next, ok
}

// wantsHold: that of its owner, which no chance brings back.
func wantsHold(e *event) bool {
	return e.what == "release" || e.what == "extend" || e.what == "trust" || e.what == "nest"
}

// comes is the world after an event, before which those have left who had to.
func (s *search) comes(w world, o porcupine.Operation) (world, bool) {
	if s.isCrowded(w, o) {
		return w, false
	}
	return s.happens(w, o.Input.(*event))
}

// isCrowded: somebody is there who had to leave before.
func (s *search) isCrowded(w world, o porcupine.Operation) bool {
	state, ok := w.state.(lockState)
	return ok && state.outstays(s.until, o.Call)
}

func (s *lockState) outstays(until map[string]int64, now int64) bool {
	if end, ok := until[s.writer.id]; ok && end < now {
		return true
	}
	for _, place := range strings.Fields(s.line) {
		if end, ok := until[operationOf(place)]; ok && end < now {
			return true
		}
	}
	return false
}

// A part is what a chance may have had in an event.
type part int

const (
	noPart part = iota
	last        // nothing else has to come between
	between
)

// partOf: of what may have begun one is enough, but of a queue. There the order matters, so the next waiter
// may find others there, and a reader of the queue does.
func partOf(c *chance, o porcupine.Operation) part {
	e := o.Input.(*event)
	switch {
	case c.event.until != 0 && c.event.until < o.Call:
		return noPart
	case c.use == ends || c.use == breaks:
		return between
	case c.use == adds || e.what != "stand" && e.what != "look":
		return last
	case e.what == "look" && !strings.Contains(e.line+" "+e.op.outs["holder"], c.event.op.owner):
		return noPart
	default:
		return between
	}
}

// canBeOther: an event that can come would do something else if more had happened. It may have been at one of
// two servers, where it does nothing if there is no room for it; or it is the next in line.
func canBeOther(e *event) bool { return e.either || e.what == "stand" }

// explain finds the worlds in which an event has come, those with the fewest chances first, until one is good:
// in this one, or after some of what is there has ended, and then something that nobody believes in has begun.
func (s *search) explain(w world, came string, o porcupine.Operation, good func(world) bool) bool {
	e := o.Input.(*event)
	seen := map[world]bool{w: true}
	for queue := []world{w}; len(queue) > 0 && time.Now().Before(s.end); queue = queue[1:] {
		next, ok := s.comes(queue[0], o)
		if ok && good(next) {
			return true
		}
		if ok && !canBeOther(e) || wantsHold(e) && !s.isCrowded(queue[0], o) {
			continue
		}
		for _, c := range s.chances {
			part := partOf(c, o)
			if ok && e.what == "stand" && c.use != stands {
				continue // That can happen later as well.
			}
			after, ok := s.take(queue[0], came, c)
			if part == noPart || !ok || seen[after] {
				continue
			}
			seen[after] = true
			if part == between {
				queue = append(queue, after)
			} else if next, ok := s.comes(after, o); ok && good(next) {
				return true
			}
		}
	}
	return false
}

// fewer: no chance was taken that the other did not take.
func fewer(taken, other string) bool {
	for i := range taken {
		if taken[i] > other[i] {
			return false
		}
	}
	return true
}

func hasChances(events []porcupine.Operation) bool {
	for _, o := range events {
		if o.Input.(*event).chance != nil {
			return true
		}
	}
	return false
}

// hasLine: somebody may have stood in line. There the search leaves out orders of which it is not proven that another
// does as well; what it finds is an order, but that there is none only Porcupine can say.
func hasLine(events []porcupine.Operation) bool {
	for _, o := range events {
		if c := o.Input.(*event).chance; c != nil && c.use == stands {
			return true
		}
	}
	return false
}

func (s *search) result() porcupine.CheckResult {
	none := string(make([]byte, len(s.chances)))
	ok := s.goesOn(make([]byte, len(s.events)), world{place{state: s.model.begin()}, none})
	switch {
	case ok:
		return porcupine.Ok
	case time.Now().After(s.end):
		return porcupine.Unknown
	default:
		return porcupine.Illegal
	}
}

// searched says whether there is an order that explains all answers. If there is none even if every chance
// could be taken again and again, that is known soon, since nothing has to be counted.
func searched(m *model, events []porcupine.Operation, within time.Duration) porcupine.CheckResult {
	s := newSearch(m, events, within)
	s.again = true
	if result := s.result(); result != porcupine.Ok {
		return result
	}
	s.again, s.seen = false, map[string][]string{}
	return s.result()
}
