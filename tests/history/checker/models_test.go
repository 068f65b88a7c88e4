package main

import (
	"strconv"
	"testing"

	"github.com/anishathalye/porcupine"
)

// at makes an operation: its times are its place and a little.
func at(call, ret int64, kind, owner, verb, code string, args, outs map[string]string) *op {
	return &op{id: owner + "." + verb, process: owner, name: kind, kind: kind, owner: owner, verb: verb, code: code,
		args: args, outs: outs, call: call * 1e7, ret: ret * 1e7}
}

type words = map[string]string

func acquire(call, ret int64, kind, owner, verb, code string) *op {
	return at(call, ret, kind, owner, verb, code, words{"wait": "0", "lease": "0", "nested": "0", "hold": "-"},
		words{"count": "1", "token": "5"})
}

func release(call, ret int64, kind, owner, verb, code, hold string) *op {
	return at(call, ret, kind, owner, verb, code, words{"left": "0", "hold": hold}, words{})
}

func judged(t *testing.T, want porcupine.CheckResult, sure map[string]int64, ops ...*op) {
	t.Helper()
	h := &history{ops: ops, sure: sure}
	if got := judge(h, ops, *limit); got != want {
		t.Errorf("%s: %s instead of %s", ops[0].kind, got, want)
	}
}

var lockKinds = []string{"plain", "nonreentrant", "spin", "fenced", "fair"}

func TestOneHolderAfterTheOther(t *testing.T) {
	for _, kind := range lockKinds {
		second := acquire(5, 6, kind, "b", "acquire", "HF_OK")
		second.outs["token"] = "6"
		judged(t, porcupine.Ok, nil, acquire(1, 2, kind, "a", "acquire", "HF_OK"),
			release(3, 4, kind, "a", "release", "HF_OK", "a.acquire"), second)
	}
}

func TestTwoHoldersAtOnce(t *testing.T) {
	sure := map[string]int64{"a.acquire": 9e7}
	for _, kind := range lockKinds {
		second := acquire(3, 4, kind, "b", "acquire", "HF_OK")
		second.outs["token"] = "6"
		judged(t, porcupine.Illegal, sure, acquire(1, 2, kind, "a", "acquire", "HF_OK"), second)
		late := acquire(8, 10, kind, "b", "acquire", "HF_OK")
		late.outs["token"] = "6"
		judged(t, porcupine.Ok, sure, acquire(1, 2, kind, "a", "acquire", "HF_OK"), late)
		judged(t, porcupine.Illegal, sure, acquire(1, 2, kind, "a", "acquire", "HF_OK"),
			release(3, 4, kind, "a", "release", "HF_ELOST", "a.acquire"))
	}
}

func TestBusyWithoutAReason(t *testing.T) {
	for _, kind := range lockKinds {
		judged(t, porcupine.Illegal, nil, acquire(1, 2, kind, "a", "acquire", "HF_EBUSY"))
		pending := acquire(1, 2, kind, "b", "acquire", "")
		pending.ret = forever
		judged(t, porcupine.Ok, nil, pending, acquire(3, 4, kind, "a", "acquire", "HF_EBUSY"))
	}
}

func TestTokensGrow(t *testing.T) {
	judged(t, porcupine.Illegal, nil, acquire(1, 2, "fenced", "a", "acquire", "HF_OK"),
		release(3, 4, "fenced", "a", "release", "HF_OK", "a.acquire"),
		acquire(5, 6, "fenced", "b", "acquire", "HF_OK"))
}

func TestLineOfAFairLock(t *testing.T) {
	wait := func(call, ret int64, owner string) *op {
		o := acquire(call, ret, "fair", owner, "acquire", "HF_OK")
		o.args["wait"] = "50"
		return o
	}
	look := at(4, 5, "fair", "driver", "look", "HF_OK", words{}, words{"holder": "a", "queue": "b,c"})
	end := release(6, 7, "fair", "a", "release", "HF_OK", "a.acquire")
	first := acquire(1, 2, "fair", "a", "acquire", "HF_OK")
	judged(t, porcupine.Ok, map[string]int64{"b.acquire": 30e7}, first, wait(3, 8, "b"), wait(3, 12, "c"), look, end,
		release(9, 10, "fair", "b", "release", "HF_OK", "b.acquire"))
	judged(t, porcupine.Illegal, map[string]int64{"b.acquire": 30e7, "c.acquire": 30e7}, first, wait(3, 12, "b"), wait(3, 8, "c"), look,
		end, release(9, 10, "fair", "c", "release", "HF_OK", "c.acquire"))
}

func TestReadersAndWriters(t *testing.T) {
	sure := map[string]int64{"a.acquire_read": 9e7, "b.acquire_read": 9e7, "c.acquire_write": 9e7}
	a := acquire(1, 2, "readwrite", "a", "acquire_read", "HF_OK")
	judged(t, porcupine.Ok, sure, a, acquire(3, 4, "readwrite", "b", "acquire_read", "HF_OK"))
	judged(t, porcupine.Illegal, sure, a, acquire(3, 4, "readwrite", "c", "acquire_write", "HF_OK"))
	judged(t, porcupine.Illegal, sure, a, acquire(3, 4, "readwrite", "b", "acquire_read", "HF_EBUSY"))
}

func number(call, ret int64, kind, verb, code, permits, value string) *op {
	o := at(call, ret, kind, "a", verb, code, words{"permits": permits}, words{"value": value})
	o.id = verb + permits + value
	return o
}

func TestSemaphore(t *testing.T) {
	set := number(1, 2, "semaphore", "try_set", "HF_OK", "2", "1")
	take := number(3, 4, "semaphore", "acquire", "HF_OK", "2", "")
	judged(t, porcupine.Ok, nil, set, take, number(5, 6, "semaphore", "available", "HF_OK", "", "0"))
	judged(t, porcupine.Illegal, nil, set, take, number(5, 6, "semaphore", "available", "HF_OK", "", "1"))
	judged(t, porcupine.Illegal, nil, set, take, number(5, 6, "semaphore", "acquire", "HF_OK", "1", ""))
	unknown := number(3, 4, "semaphore", "release", "HF_EINDOUBT", "1", "")
	for _, value := range []string{"2", "3"} {
		judged(t, porcupine.Ok, nil, set, unknown, number(5, 6, "semaphore", "available", "HF_OK", "", value))
	}
	judged(t, porcupine.Illegal, nil, set, unknown, number(5, 6, "semaphore", "available", "HF_OK", "", "4"))
}

func TestLatch(t *testing.T) {
	set := number(1, 2, "latch", "try_set", "HF_OK", "1", "1")
	down := number(3, 4, "latch", "count_down", "HF_OK", "", "")
	judged(t, porcupine.Ok, nil, set, down, number(5, 6, "latch", "await", "HF_OK", "", ""))
	judged(t, porcupine.Illegal, nil, set, number(5, 6, "latch", "await", "HF_OK", "", ""))
	judged(t, porcupine.Illegal, nil, set, down, number(5, 6, "latch", "await", "HF_EBUSY", "", ""))
}

func permit(call, ret int64, verb, code, id string) *op {
	o := at(call, ret, "permits", "a", verb, code, words{"permits": "1", "ids": id}, words{"ids": id})
	o.id = verb + id
	return o
}

func TestPermits(t *testing.T) {
	sure := map[string]int64{"x": 9e7, "y": 9e7}
	set := number(1, 2, "permits", "try_set", "HF_OK", "1", "1")
	x := permit(3, 4, "acquire", "HF_OK", "x")
	judged(t, porcupine.Ok, sure, set, x, permit(5, 6, "release", "HF_OK", "x"), permit(7, 8, "acquire", "HF_OK", "y"))
	judged(t, porcupine.Illegal, sure, set, x, permit(5, 6, "acquire", "HF_OK", "y"))
	judged(t, porcupine.Ok, sure, set, x, permit(9, 10, "acquire", "HF_OK", "y"))
	judged(t, porcupine.Illegal, sure, set, x, permit(5, 6, "release", "HF_ELOST", "x"))
	judged(t, porcupine.Illegal, sure, set, x, permit(5, 6, "release", "HF_OK", "y"))
}

// A permit whose lease was over before the answer came is none, and the wait then ends without it.
func TestAPermitThatCameTooLate(t *testing.T) {
	set := number(1, 2, "permits", "try_set", "HF_OK", "2", "1")
	late := permit(3, 40, "acquire", "HF_ETIMEDOUT", "x")
	late.args["lease"] = "300"
	judged(t, porcupine.Ok, nil, set, late)
	late.args["lease"] = "400"
	judged(t, porcupine.Illegal, nil, set, late)
}

// Of the waiters that gave up the number is known, not who has taken what: that is tried once for all
// of them.
func TestManyWhoGaveUp(t *testing.T) {
	for kind, counts := range map[string]string{"permits": "taken", "semaphore": "available"} {
		ops := []*op{number(1, 2, kind, "try_set", "HF_OK", "3", "1")}
		for i := int64(0); i < 40; i++ {
			given := number(3, 4, kind, "acquire", "HF_ECANCELED", strconv.FormatInt(1+i%2, 10), "")
			given.id += strconv.FormatInt(i, 10)
			ops = append(ops, given)
		}
		for i := int64(0); i < 40; i++ {
			ops = append(ops, number(5+2*i, 6+2*i, kind, counts, "HF_OK", "", strconv.FormatInt(i%4, 10)))
		}
		judged(t, porcupine.Ok, nil, ops...)
		judged(t, porcupine.Illegal, nil, append(ops, number(90, 91, kind, counts, "HF_OK", "", "4"))...)
	}
}

// One of them cannot take twice, nor give back what it did not take.
func TestOneWhoGaveUp(t *testing.T) {
	for _, kind := range []string{"permits", "semaphore"} {
		set := number(1, 2, kind, "try_set", "HF_OK", "3", "1")
		given := number(3, 4, kind, "acquire", "HF_ECANCELED", "2", "")
		count := func(at int64, value string) *op { return number(at, at+1, kind, "available", "HF_OK", "", value) }
		judged(t, porcupine.Ok, nil, set, given, count(5, "3"), count(7, "1"), count(9, "3"))
		judged(t, porcupine.Illegal, nil, set, given, count(5, "1"), count(7, "3"), count(9, "1"))
		judged(t, porcupine.Illegal, nil, set, given, count(5, "2"))
		later := number(5, 6, kind, "acquire", "HF_ECANCELED", "2", "")
		judged(t, porcupine.Illegal, nil, set, count(3, "1"), later)
		one := number(3, 4, kind, "acquire", "HF_ECANCELED", "1", "")
		judged(t, porcupine.Ok, nil, set, given, one, count(5, "0"), count(7, "1"), count(9, "3"))
		judged(t, porcupine.Illegal, nil, set, given, one, count(5, "0"), count(7, "3"), count(9, "2"))
	}
}

func values(o *op, text string) *op {
	o.args["values"], o.args["beside"] = text, "-"
	o.id += text
	return o
}

func TestSetsThatOverlap(t *testing.T) {
	sure := map[string]int64{"a.acquirea,b": 9e7, "b.acquirec": 9e7, "b.acquireb,c": 9e7}
	first := values(acquire(1, 2, "group", "a", "acquire", "HF_OK"), "a,b")
	judged(t, porcupine.Ok, sure, first, values(acquire(3, 4, "group", "b", "acquire", "HF_OK"), "c"))
	judged(t, porcupine.Illegal, sure, first, values(acquire(3, 4, "group", "b", "acquire", "HF_OK"), "b,c"))
	judged(t, porcupine.Illegal, sure, first, values(acquire(3, 4, "group", "b", "acquire", "HF_EBUSY"), "c,d"))
	judged(t, porcupine.Ok, sure, first, values(acquire(3, 4, "group", "b", "acquire", "HF_EBUSY"), "b,d"))
	judged(t, porcupine.Ok, sure, first, values(acquire(3, 4, "group", "a", "acquire", "HF_EDEADLK"), "b,d"))
	judged(t, porcupine.Illegal, sure, first, values(acquire(3, 4, "group", "a", "acquire", "HF_EDEADLK"), "d"))
}

func TestPartOfASetIsBroken(t *testing.T) {
	sure := map[string]int64{"a.acquirea,b": 90e7, "c.acquireb": 90e7}
	first := values(acquire(1, 2, "group", "a", "acquire", "HF_OK"), "a,b")
	broken := values(at(3, 4, "group", "b", "break", "HF_OK", words{}, words{"value": "1"}), "a")
	lost := values(release(5, 6, "group", "a", "release", "HF_ELOST", "a.acquirea,b"), "a,b")
	rest := values(acquire(7, 8, "group", "c", "acquire", "HF_OK"), "b")
	judged(t, porcupine.Ok, sure, first, broken, lost, rest)
	judged(t, porcupine.Illegal, sure, first, lost, rest)
}

func trust(call, ret int64, owner, value string) *op {
	o := at(call, ret, "quorum", owner, "trust", "HF_OK", words{"hold": owner + ".acquire"}, words{"value": value})
	o.id += value
	return o
}

func TestQuorum(t *testing.T) {
	sure := map[string]int64{"a.acquire": 40e7, "b.acquire": 40e7}
	a, b := acquire(1, 2, "quorum", "a", "acquire", "HF_OK"), acquire(5, 6, "quorum", "b", "acquire", "HF_OK")
	free := at(3, 4, "quorum", "b", "is_locked", "HF_OK", words{}, words{"value": "0"})
	lost := release(9, 10, "quorum", "a", "release", "HF_ELOST", "a.acquire")
	judged(t, porcupine.Illegal, sure, a, b)
	judged(t, porcupine.Illegal, sure, a, free)
	judged(t, porcupine.Illegal, sure, a, lost)
	judged(t, porcupine.Illegal, nil, acquire(1, 2, "quorum", "a", "acquire", "HF_EBUSY"))
	judged(t, porcupine.Ok, nil, acquire(1, 3, "quorum", "a", "acquire", "HF_EBUSY"),
		acquire(2, 4, "quorum", "b", "acquire", "HF_EBUSY"))
	wiped := func(want porcupine.CheckResult, ops ...*op) {
		t.Helper()
		h := &history{ops: ops, sure: sure, wipes: []span{{3e7, 4e7}}}
		if got := judge(h, ops, *limit); got != want {
			t.Errorf("%s instead of %s", got, want)
		}
	}
	wiped(porcupine.Ok, a, b, lost)
	wiped(porcupine.Ok, a, trust(4, 5, "a", "100"), b, lost)
	wiped(porcupine.Illegal, a, b, trust(7, 8, "a", "100"), lost)
	wiped(porcupine.Illegal, a, b, release(9, 10, "quorum", "a", "release", "HF_OK", "a.acquire"))
}

func TestLocksThatAreTakenTogether(t *testing.T) {
	sure := map[string]int64{"a.acquirea,b": 9e7, "b.acquireb,c": 9e7, "b.acquirec": 9e7}
	first := values(acquire(1, 2, "multi", "a", "acquire", "HF_OK"), "a,b")
	judged(t, porcupine.Ok, sure, first, values(acquire(3, 4, "multi", "b", "acquire", "HF_OK"), "c"))
	judged(t, porcupine.Illegal, sure, first, values(acquire(3, 4, "multi", "b", "acquire", "HF_OK"), "b,c"))
	judged(t, porcupine.Ok, sure, first, values(acquire(3, 4, "multi", "b", "acquire", "HF_EBUSY"), "c"))
	twice := values(acquire(3, 4, "multi", "b", "acquire", "HF_OK"), "c")
	twice.outs["count"] = "2"
	judged(t, porcupine.Illegal, sure, twice)
	judged(t, porcupine.Ok, sure, values(acquire(1, 2, "multi", "b", "acquire", "HF_ETIMEDOUT"), "c,d"), twice)
	judged(t, porcupine.Illegal, sure, first,
		values(release(3, 4, "multi", "a", "release", "HF_ELOST", "a.acquirea,b"), "a,b"))
}

// An attempt took the lock, its answer was lost, and its lease ran out before the next.
func TestAnAcquireThatTookItTwice(t *testing.T) {
	twice := acquire(1, 60, "plain", "a", "acquire", "HF_OK")
	twice.args["lease"] = "100"
	refused := acquire(3, 4, "plain", "b", "acquire", "HF_EBUSY")
	between := acquire(20, 21, "plain", "c", "acquire", "HF_OK")
	end := release(30, 31, "plain", "c", "release", "HF_OK", "c.acquire")
	sure := map[string]int64{"a.acquire": 65e7, "c.acquire": 40e7}
	ops := []*op{twice, refused, between, end}
	judged(t, porcupine.Illegal, sure, ops...)
	if got := judge(&history{ops: ops, sure: sure, cuts: []int64{5e7}}, ops, *limit); got != porcupine.Ok {
		t.Errorf("%s", got)
	}
}

// The same, and by the next attempt somebody else has it.
func TestAnAcquireThatTookItAndIsRefused(t *testing.T) {
	late := acquire(1, 60, "plain", "a", "acquire", "HF_EBUSY")
	late.args["lease"] = "100"
	refused := acquire(3, 4, "plain", "b", "acquire", "HF_EBUSY")
	after := acquire(20, 90, "plain", "c", "acquire", "HF_OK")
	sure := map[string]int64{"c.acquire": 95e7}
	ops := []*op{late, refused, after}
	judged(t, porcupine.Illegal, sure, ops...)
	if got := judge(&history{ops: ops, sure: sure, cuts: []int64{5e7}}, ops, *limit); got != porcupine.Ok {
		t.Errorf("%s", got)
	}
}

// Who stood in line was the reason of a refusal, was forgotten with the line, and came again.
func TestWhoStoodInLineIsForgotten(t *testing.T) {
	waits := acquire(1, 60, "fair", "a", "acquire", "HF_OK")
	waits.args["wait"] = "50"
	between := acquire(20, 21, "fair", "c", "acquire", "HF_OK")
	end := release(30, 31, "fair", "c", "release", "HF_OK", "c.acquire")
	last := release(61, 62, "fair", "a", "release", "HF_OK", "a.acquire")
	sure := map[string]int64{"a.acquire": 90e7, "c.acquire": 40e7}
	forgotten := func(want porcupine.CheckResult, refused *op, wipes ...span) {
		t.Helper()
		ops := []*op{waits, refused, between, end, last}
		if got := judge(&history{ops: ops, sure: sure, cuts: []int64{10e7}, wipes: wipes}, ops, *limit); got != want {
			t.Errorf("%s instead of %s", got, want)
		}
	}
	before := acquire(3, 4, "fair", "b", "acquire", "HF_EBUSY")
	forgotten(porcupine.Ok, before, span{10e7, 11e7})
	forgotten(porcupine.Illegal, before)
	forgotten(porcupine.Illegal, acquire(12, 13, "fair", "b", "acquire", "HF_EBUSY"), span{10e7, 11e7})
	waits.args["wait"] = "0" // It stands in no line.
	forgotten(porcupine.Illegal, before, span{10e7, 11e7})
}

// Servers of a quorum store 1, however often it is nested: a client that has lost it is notified.
func TestCountOfAQuorumAfterTheLoss(t *testing.T) {
	sure := map[string]int64{"a.acquire": 9e7}
	counted := func(want porcupine.CheckResult, kind string, call, ret int64, value, code string) {
		t.Helper()
		nested := acquire(3, 4, kind, "a", "acquire", "HF_OK")
		nested.id, nested.args["nested"], nested.args["hold"] = "nested", "1", "a.acquire"
		nested.outs = words{"count": "2", "token": "6"}
		judged(t, want, sure, acquire(1, 2, kind, "a", "acquire", "HF_OK"), nested,
			at(call, ret, kind, "a", "count", "HF_OK", words{}, words{"value": value}),
			release(11, 12, kind, "a", "release", code, "a.acquire"))
	}
	for _, kind := range []string{"quorum", "quorum_fenced"} {
		counted(porcupine.Ok, kind, 5, 6, "2", "HF_ELOST")
		counted(porcupine.Ok, kind, 5, 10, "1", "HF_ELOST")
		counted(porcupine.Illegal, kind, 5, 6, "1", "HF_ELOST")
		counted(porcupine.Illegal, kind, 5, 10, "3", "HF_ELOST")
		counted(porcupine.Illegal, kind, 5, 10, "1", "HF_OK")
	}
	counted(porcupine.Illegal, "plain", 5, 10, "1", "HF_ELOST")
}

// A string lock's first attempt is given up past half its lease, before it is over; another kind's is not. Nobody
// but its own owner came: then that is no reason to refuse it.
func TestAnAttemptThatIsGivenUp(t *testing.T) {
	refusal := func(want porcupine.CheckResult, kind string, cuts []int64, ret int64, others ...*op) {
		t.Helper()
		late := acquire(1, ret, kind, "a", "acquire", "HF_EBUSY")
		late.args["lease"] = "600"
		ops := append([]*op{late}, others...)
		for _, o := range others {
			o.name, o.kind = kind, kind
		}
		sure := map[string]int64{"c.acquire": 95e7}
		if got := judge(&history{ops: ops, sure: sure, cuts: cuts}, ops, *limit); got != want {
			t.Errorf("%s, %d: %s instead of %s", kind, ret, got, want)
		}
	}
	refused := acquire(3, 4, "", "b", "acquire", "HF_EBUSY")
	after := acquire(20, 90, "", "c", "acquire", "HF_OK")
	lost := []int64{5e7}
	refusal(porcupine.Ok, "string", lost, 40, refused, after)
	refusal(porcupine.Illegal, "string", nil, 40, refused, after)
	refusal(porcupine.Illegal, "string", lost, 25, refused, after)
	refusal(porcupine.Illegal, "plain", lost, 40, refused, after)
	refusal(porcupine.Illegal, "string", lost, 40, refused)
}

// A cancelled acquire of its own is no reason, either.
func TestRefusedByItsCancelledAcquires(t *testing.T) {
	first := acquire(1, 2, "string", "a", "acquire", "HF_ECANCELED")
	second := acquire(3, 4, "string", "a", "acquire", "HF_ECANCELED")
	judged(t, porcupine.Illegal, nil, first, second, acquire(5, 6, "string", "a", "acquire", "HF_EBUSY"))
	judged(t, porcupine.Ok, nil, first, second, acquire(5, 6, "string", "a", "acquire", "HF_OK"))
	judged(t, porcupine.Ok, nil, first, second, acquire(5, 6, "string", "b", "acquire", "HF_EBUSY"))
}

// What an acquire has taken for a while that was given up is not in this model, so nothing is made of who
// sees it, on whichever side.
func TestMovingSeemsLocked(t *testing.T) {
	given := acquire(1, 2, "moving_readwrite", "a", "acquire_write", "HF_ECANCELED")
	seen := at(3, 4, "moving_readwrite", "b", "is_locked_write", "HF_OK", words{}, words{"value": "1"})
	judged(t, porcupine.Ok, nil, given, seen)
	held := acquire(1, 2, "moving_readwrite", "a", "acquire_write", "HF_OK")
	free := at(3, 4, "moving_readwrite", "b", "is_locked_write", "HF_OK", words{}, words{"value": "0"})
	judged(t, porcupine.Illegal, map[string]int64{"a.acquire_write": 9e7}, held, free)
}

// Who gave up may stand in line for a while.
func TestWhoGaveUpMayStandInLine(t *testing.T) {
	look := func(call, ret int64, holder, queue string) *op {
		return at(call, ret, "fair", "driver", "look", "HF_OK", words{}, words{"holder": holder, "queue": queue})
	}
	holds := acquire(1, 2, "fair", "a", "acquire", "HF_OK")
	given := acquire(3, 4, "fair", "b", "acquire", "HF_ECANCELED")
	given.args["wait"] = "50"
	refused := acquire(7, 8, "fair", "b", "acquire", "HF_EBUSY")
	sure := map[string]int64{"a.acquire": 90e7}
	judged(t, porcupine.Ok, sure, holds, given, look(5, 6, "a", "b"))
	judged(t, porcupine.Ok, sure, holds, given, look(5, 6, "a", "b"), refused, look(9, 10, "a", ""))
	judged(t, porcupine.Ok, sure, holds, given, look(9, 10, "a", "b"))
}

// An owner stands in line, and may have stood there before: of a wait so long that it may have been passed over.
func TestWhoStandsInLineAgain(t *testing.T) {
	wait := func(call, ret int64, owner, code string) *op {
		o := acquire(call, ret, "fair", owner, "acquire", code)
		o.args["wait"] = "50"
		return o
	}
	look := func(queue string) *op {
		return at(36, 37, "fair", "driver", "look", "HF_OK", words{}, words{"holder": "a", "queue": queue})
	}
	first := acquire(1, 2, "fair", "a", "acquire", "HF_OK")
	given, again, other := wait(3, 30, "b", "HF_ETIMEDOUT"), wait(32, 40, "b", "HF_OK"), wait(33, 46, "c", "HF_OK")
	end := release(38, 39, "fair", "a", "release", "HF_OK", "a.acquire")
	next := release(42, 43, "fair", "b", "release", "HF_OK", "b.acquire")
	sure := map[string]int64{"a.acquire": 90e7, "b.acquire": 90e7, "c.acquire": 90e7}
	judged(t, porcupine.Ok, sure, first, given, again, other, look("b,c"), end, next)
	judged(t, porcupine.Illegal, sure, first, given, again, other, look("b,d"), end, next)
}

// One that was killed may have taken the lock without waiting, before others stood in line.
func TestWhoWasKilledIsWaitedFor(t *testing.T) {
	killed := acquire(1, 2, "fair", "k", "acquire", "")
	killed.ret = forever
	waits := acquire(3, 8, "fair", "b", "acquire", "HF_OK")
	waits.args["wait"] = "50"
	look := func(queue string) *op {
		return at(5, 6, "fair", "driver", "look", "HF_OK", words{}, words{"holder": "k", "queue": queue})
	}
	judged(t, porcupine.Ok, nil, killed, waits, look("b"))
	judged(t, porcupine.Illegal, nil, killed, waits, look("c"))
}

// ---- Cohorts -------------------------------------------------------------------------------------

// of makes it an operation of a thread of a process.
func (o *op) of(process string) *op {
	o.process = process
	return o
}

func broken(call, ret int64) *op {
	return at(call, ret, "cohort", "x", "break", "HF_OK", words{}, words{"value": "1"})
}

func cohortTake(call, ret int64, owner, process string) *op {
	return acquire(call, ret, "cohort", owner, "acquire", "HF_OK").of(process)
}

func cohortGive(call, ret int64, owner, process, code string) *op {
	return release(call, ret, "cohort", owner, "release", code, owner+".acquire").of(process)
}

func TestCohortPassesOn(t *testing.T) {
	judged(t, porcupine.Ok, nil, cohortTake(1, 2, "a", "p"), cohortTake(2, 5, "b", "p"),
		cohortGive(3, 4, "a", "p", "HF_OK"), cohortGive(6, 7, "b", "p", "HF_OK"), cohortTake(7, 8, "c", "q"))
	judged(t, porcupine.Illegal, map[string]int64{"a.acquire": 9e7}, cohortTake(1, 2, "a", "p"),
		cohortTake(3, 4, "b", "p"))
	judged(t, porcupine.Illegal, map[string]int64{"a.acquire": 9e7}, cohortTake(1, 2, "a", "p"),
		cohortTake(3, 4, "c", "q"))
}

// b waits, so a's release may have passed on what is broken: then b is inside beside c.
func TestCohortPassesOnWhatIsBroken(t *testing.T) {
	sure := map[string]int64{"a.acquire": 2e8, "b.acquire": 2e8, "c.acquire": 2e8}
	judged(t, porcupine.Ok, sure, cohortTake(1, 2, "a", "p"), cohortTake(2, 8, "b", "p"), broken(3, 4),
		cohortTake(5, 6, "c", "q"), cohortGive(7, 8, "a", "p", "HF_OK"), cohortGive(9, 10, "b", "p", "HF_ELOST"),
		cohortGive(11, 12, "c", "q", "HF_OK"))
	// Nobody waits: the server was asked, and says so.
	judged(t, porcupine.Illegal, sure, cohortTake(1, 2, "a", "p"), broken(3, 4), cohortTake(5, 6, "c", "q"),
		cohortGive(7, 8, "a", "p", "HF_OK"))
	// The last of them is notified.
	judged(t, porcupine.Illegal, sure, cohortTake(1, 2, "a", "p"), cohortTake(2, 8, "b", "p"), broken(3, 4),
		cohortTake(5, 6, "c", "q"), cohortGive(7, 8, "a", "p", "HF_OK"), cohortGive(9, 10, "b", "p", "HF_OK"))
	// Two of one process are never inside at once.
	judged(t, porcupine.Illegal, sure, cohortTake(1, 2, "a", "p"), broken(3, 4), cohortTake(5, 6, "b", "p"),
		cohortGive(7, 8, "a", "p", "HF_OK"))
	// Nothing was broken.
	judged(t, porcupine.Illegal, sure, cohortTake(1, 2, "a", "p"), cohortTake(2, 8, "b", "p"),
		cohortTake(5, 6, "c", "q"), cohortGive(7, 8, "a", "p", "HF_OK"), cohortGive(9, 10, "b", "p", "HF_ELOST"))
	judged(t, porcupine.Illegal, sure, cohortTake(1, 2, "a", "p"), cohortGive(3, 4, "a", "p", "HF_ELOST"))
}

// By the deadline a process knows what it has lost: c is alone then.
func TestCohortPassesOnForAWhile(t *testing.T) {
	sure := map[string]int64{"c.acquire": 9e9}
	judged(t, porcupine.Illegal, sure, cohortTake(1, 2, "a", "p"), cohortTake(2, 8, "b", "p"), broken(3, 4),
		cohortTake(5, 6, "c", "q"), cohortGive(7, 8, "a", "p", "HF_OK"), cohortTake(200, 202, "d", "p"),
		cohortGive(201, 202, "b", "p", "HF_OK"))
}

// What an owner has given up of one side may be in its own way at the other; nothing else of its own is.
func TestRefusedByItself(t *testing.T) {
	for _, kind := range []string{"readwrite", "moving_readwrite"} {
		refused := acquire(3, 4, kind, "a", "acquire_write", "HF_EBUSY")
		judged(t, porcupine.Ok, nil, acquire(1, 2, kind, "a", "acquire_read", "HF_ECANCELED"), refused)
		judged(t, porcupine.Illegal, nil, acquire(1, 2, kind, "a", "acquire_write", "HF_ECANCELED"), refused)
		judged(t, porcupine.Illegal, nil, refused)
	}
}
