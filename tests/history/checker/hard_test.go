package main

import (
	"math/rand"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
)

// Histories that are hard to judge: many owners at one group, of whom many give up or break. They are made
// by letting it happen, so they are right.

const ms = 1000000

// A moment is when something happens to what is there.
type moment struct {
	at int64
	do func()
}

type played struct {
	random  *rand.Rand
	moments []moment
	held    [setValues]string // the hold that has the value
	lost    map[string]bool
	ops     []*op
	sure    map[string]int64
}

func (p *played) later(at int64, do func()) {
	p.moments = append(p.moments, moment{at, do})
	sort.SliceStable(p.moments, func(i, j int) bool { return p.moments[i].at < p.moments[j].at })
}

func (p *played) isFree(mask uint8) bool {
	for value := range p.held {
		if mask>>value&1 != 0 && p.held[value] != "" {
			return false
		}
	}
	return true
}

func (p *played) take(mask uint8, id string) {
	for value := range p.held {
		if mask>>value&1 != 0 {
			p.held[value] = id
		}
	}
}

func (p *played) end(id string) {
	for value := range p.held {
		if p.held[value] == id {
			p.held[value] = ""
		}
	}
}

func textOf(mask uint8) string {
	var letters []string
	for value := 0; value < setValues; value++ {
		if mask>>value&1 != 0 {
			letters = append(letters, string(rune('a'+value)))
		}
	}
	return strings.Join(letters, ",")
}

func (p *played) some(below int64) int64 { return 1 + p.random.Int63n(below) }

// call is an operation from now on, which happens some time, and returns some time later.
func (p *played) call(now int64, owner, verb string, mask uint8, args words, does func(o *op), then func(o *op)) {
	o := &op{id: owner + "." + strconv.Itoa(len(p.ops)), process: owner, name: "group", kind: "group", owner: owner,
		verb: verb, args: args, outs: words{}, call: now}
	args["values"], args["beside"] = textOf(mask), "-"
	p.ops = append(p.ops, o)
	happens := now + p.some(2*ms)
	o.ret = happens + p.some(2*ms)
	p.later(happens, func() { does(o) })
	p.later(o.ret, func() { then(o) })
}

func (p *played) breakSome(now int64, owner string, mask uint8) {
	p.call(now, owner, "break", mask, words{}, func(o *op) {
		o.code, o.outs["value"] = "HF_OK", "0"
		for value := range p.held {
			if hold := p.held[value]; mask>>value&1 != 0 && hold != "" {
				p.held[value], p.lost[hold], o.outs["value"] = "", true, "1"
				p.later(o.ret+p.some(2*ms), func() { p.end(hold) })
			}
		}
	}, func(o *op) { p.visit(o.ret+p.some(3*ms), owner) })
}

func (p *played) acquire(now int64, owner string, mask uint8, givesUp bool) {
	args := words{"wait": "5", "lease": "0", "nested": "0", "hold": "-"}
	p.call(now, owner, "acquire", mask, args, func(o *op) {
		free := p.isFree(mask)
		switch {
		case givesUp:
			o.code = "HF_ECANCELED"
			if free {
				p.take(mask, o.id)
				p.later(o.ret+p.some(2*ms), func() { p.end(o.id) })
			}
		case free:
			o.code, o.outs["count"] = "HF_OK", "1"
			p.take(mask, o.id)
		default:
			o.code = "HF_EBUSY"
		}
	}, func(o *op) {
		if o.code == "HF_OK" {
			p.later(o.ret+p.some(4*ms), func() { p.release(o, mask) })
		} else {
			p.visit(o.ret+p.some(3*ms), owner)
		}
	})
}

func (p *played) release(held *op, mask uint8) {
	now := p.moments[0].at
	p.sure[held.id] = now + 500*ms
	p.call(now, held.owner, "release", mask, words{"left": "0", "hold": held.id}, func(o *op) {
		o.code = "HF_OK"
		if p.lost[held.id] {
			o.code = "HF_ELOST"
		}
		p.end(held.id)
	}, func(o *op) { p.visit(o.ret+p.some(3*ms), held.owner) })
}

func (p *played) visit(at int64, owner string) {
	p.later(at, func() {
		mask := uint8(p.some(1<<setValues - 1))
		switch dice := p.random.Intn(100); {
		case dice < 8:
			p.breakSome(at, owner, mask)
		case dice < 20:
			p.call(at, owner, "is_locked", mask, words{}, func(o *op) {
				o.code, o.outs["value"] = "HF_OK", "1"
				if p.isFree(mask) {
					o.outs["value"] = "0"
				}
			}, func(o *op) { p.visit(o.ret+p.some(3*ms), owner) })
		default:
			p.acquire(at, owner, mask, dice < 45)
		}
	})
}

func playGroup(seed int64, players, ops int) *played {
	p := &played{random: rand.New(rand.NewSource(seed)), lost: map[string]bool{}, sure: map[string]int64{}}
	for i := 0; i < players; i++ {
		p.visit(p.some(5*ms), "player"+strconv.Itoa(i))
	}
	for len(p.ops) < ops {
		p.moments[0].do()
		p.moments = p.moments[1:]
	}
	for _, o := range p.ops {
		if o.code == "" {
			o.ret = forever
		}
	}
	return p
}

func TestManyWhoBreakAndGiveUp(t *testing.T) {
	for seed := int64(1); seed <= 10; seed++ {
		p := playGroup(seed, 4, 170)
		judged(t, porcupine.Ok, p.sure, p.ops...)
	}
}
