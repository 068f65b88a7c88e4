package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// A lie changes one answer of a history; false: not this one.
type lie struct {
	name string
	tell func(o *op) bool
}

func verbIs(o *op, verb string) bool {
	plain, _ := splitSide(o.verb)
	return plain == verb
}

func flip(verb string) lie {
	return lie{"the other answer of " + verb, func(o *op) bool {
		if !verbIs(o, verb) || o.code != "HF_OK" {
			return false
		}
		o.outs["value"] = strconv.FormatInt(1-o.value(), 10)
		return true
	}}
}

func more(verb string, by int64) lie {
	return lie{fmt.Sprintf("%s says %d more", verb, by), func(o *op) bool {
		if !verbIs(o, verb) || o.code != "HF_OK" {
			return false
		}
		o.outs["value"] = strconv.FormatInt(o.value()+by, 10)
		return true
	}}
}

// A second holder: a refused client was let in.
func letIn(verb string) lie {
	return lie{"a refused " + verb + " that was let in", func(o *op) bool {
		if !verbIs(o, verb) || o.code != "HF_EBUSY" {
			return false
		}
		o.code = "HF_OK"
		o.outs["count"], o.outs["token"] = "1", "9223372036854775807"
		o.outs["ids"] = o.id
		if o.args["permits"] == "2" {
			o.outs["ids"] = o.id + "," + o.id + "'"
		}
		return true
	}}
}

var lostRelease = lie{"a hold that was lost before its time", func(o *op) bool {
	if !verbIs(o, "release") || o.code != "HF_OK" {
		return false
	}
	o.code = "HF_ELOST"
	return true
}}

var oldToken = lie{"an old token", func(o *op) bool {
	if o.code != "HF_OK" || !verbIs(o, "acquire") {
		return false
	}
	o.outs["token"] = "1"
	return true
}}

var otherOrder = lie{"another order of the line", func(o *op) bool {
	line := strings.Split(o.outs["queue"], ",")
	if o.verb != "look" || len(line) < 2 {
		return false
	}
	line[0], line[1] = line[1], line[0]
	o.outs["queue"] = strings.Join(line, ",")
	return true
}}

// Instead of releasing it, its owner went on to trust it, and then was silent.
var trusted = lie{"a hold that was not released, and trusted", func(o *op) bool {
	if o.verb != "release" || o.code != "HF_OK" || o.args["left"] != "0" {
		return false
	}
	o.verb, o.outs["value"] = "trust", "100"
	return true
}}

var lies = map[string][]lie{
	"plain":             {letIn("acquire"), flip("is_locked"), lostRelease},
	"nonreentrant":      {letIn("acquire"), flip("is_locked"), lostRelease},
	"spin":              {letIn("acquire"), flip("is_locked"), lostRelease},
	"fenced":            {letIn("acquire"), flip("is_locked"), lostRelease, oldToken},
	"string":            {letIn("acquire"), flip("is_locked"), lostRelease},
	"fair":              {letIn("acquire"), lostRelease, otherOrder},
	"group":             {letIn("acquire"), flip("is_locked"), lostRelease},
	"multi":             {letIn("acquire"), lostRelease},
	"readwrite":         {letIn("acquire"), flip("is_locked"), lostRelease},
	"semaphore":         {letIn("acquire"), flip("try_set"), more("available", 1)},
	"permits":           {letIn("acquire"), flip("try_set"), more("available", 1), more("taken", 3), lostRelease},
	"cohort":            {letIn("acquire"), flip("is_locked"), lostRelease},
	"cohort_fair":       {letIn("acquire"), flip("is_locked"), lostRelease},
	"cohort_string":     {letIn("acquire"), flip("is_locked"), lostRelease},
	"quorum":            {letIn("acquire"), flip("is_locked"), lostRelease, trusted},
	"quorum_string":     {letIn("acquire"), flip("is_locked"), lostRelease, trusted},
	"quorum_once":       {letIn("acquire"), flip("is_locked"), lostRelease, trusted},
	"quorum_fenced":     {letIn("acquire"), lostRelease, trusted, oldToken},
	"session":           {letIn("acquire"), flip("is_locked"), lostRelease, trusted},
	"session_once":      {letIn("acquire"), flip("is_locked"), lostRelease, trusted},
	"session_fenced":    {letIn("acquire"), lostRelease, trusted, oldToken},
	"session_readwrite": {letIn("acquire"), lostRelease},
	"session_permits":   {flip("try_set"), more("available", 1), more("taken", 3), lostRelease},
	"moving":            {letIn("acquire"), flip("is_locked"), lostRelease, trusted},
	"moving_once":       {letIn("acquire"), flip("is_locked"), lostRelease, trusted},
	"moving_fenced":     {letIn("acquire"), lostRelease, trusted, oldToken},
	"moving_fair":       {letIn("acquire"), lostRelease, trusted},
	"moving_string":     {letIn("acquire"), flip("is_locked"), lostRelease, trusted},
	"moving_readwrite":  {letIn("acquire"), lostRelease},
	"latch":             {letIn("await"), flip("try_set"), more("count", 1)},
}

const (
	plantMax  = 40 // so often a lie is planted at most,
	enough    = 3  // until it was found out so often
	lieWithin = time.Second
	promise   = 50 * 1000000
)

func copyMap(from map[string]string) map[string]string {
	to := map[string]string{}
	for key, value := range from {
		to[key] = value
	}
	return to
}

// telling tells a lie in one place; false: there is no place for it.
func telling(ops []*op, at int, l lie) ([]*op, bool) {
	changed := *ops[at]
	changed.outs = copyMap(changed.outs)
	if !l.tell(&changed) {
		return nil, false
	}
	with := append([]*op{}, ops...)
	with[at] = &changed
	return with, true
}

// promising: a client that was let in also got a time for which it can trust that.
func promising(h *history, o *op) *history {
	with := *h
	with.sure = map[string]int64{o.id: o.ret + promise, o.id + "'": o.ret + promise}
	for hold, until := range h.sure {
		with.sure[hold] = until
	}
	return &with
}

// plant tells a lie in many places, each alone, and counts how often it was found out. Not every
// one can be: what was done at the same time may explain it.
func plant(h *history, kind string, l lie) (planted, found int) {
	for _, ops := range h.parts() {
		here := 0 // Not all of them at one name.
		for at := 0; ops[0].kind == kind && at < len(ops) && here < plantMax/4; at++ {
			with, ok := telling(ops, at, l)
			if !ok {
				continue
			}
			planted++
			here++
			if judge(promising(h, with[at]), with, lieWithin) == porcupine.Illegal {
				found++
			}
			if found == enough || planted == plantMax {
				return planted, found
			}
		}
	}
	return planted, found
}

func plantAll(h *history) int {
	status := 0
	for _, kind := range h.kinds {
		all := 0
		for _, l := range lies[kind] {
			planted, found := plant(h, kind, l)
			fmt.Printf("%-13s %-40s found %2d of %2d\n", kind, l.name, found, planted)
			all += found
		}
		if all == 0 {
			fmt.Printf("MISSED: lies about %s\n", kind)
			status = exitWrong
		}
	}
	return status
}
