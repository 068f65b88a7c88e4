package main

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
)

// forever is when an operation returns that never did.
const forever = math.MaxInt64

// leeway is what clocks may differ by: the server and the library count whole milliseconds of
// different clocks.
const leeway = 2000000

// An op is an operation as it was recorded.
type op struct {
	id, process, name, kind, owner, verb string
	args, outs                           map[string]string
	call, ret                            int64
	code                                 string // "": it never returned
}

type span struct {
	from, to int64
}

// A change of the primary: between those times both may have answered, the old one and the new.
type change struct {
	span
	known int64 // by then every client knows
}

// A history is all that was recorded of a run.
type history struct {
	kinds []string // that were played
	ops   []*op
	sure  map[string]int64 // until when a hold was promised to be trusted
	kills map[string]int64
	wipes []span
	cuts  []int64 // when connections were lost
	// When the primary changed, and until when a client that held something before may not know its loss yet.
	changes []change
}

func (o *op) number(key string) int64 {
	n, err := strconv.ParseInt(o.args[key], 10, 64)
	if err != nil {
		panic(fmt.Sprintf("%s %s: no number %s", o.id, o.verb, key))
	}
	return n
}

func (o *op) value() int64 {
	n, err := strconv.ParseInt(o.outs["value"], 10, 64)
	if err != nil {
		panic(fmt.Sprintf("%s %s: no value", o.id, o.verb))
	}
	return n
}

func (o *op) String() string {
	end := "never returned"
	if o.code != "" {
		end = fmt.Sprintf("%.3f %s %v", float64(o.ret)/1e6, o.code, o.outs)
	}
	return fmt.Sprintf("%.3f %s %s %s %v -> %s", float64(o.call)/1e6, o.id, o.owner, o.verb, o.args, end)
}

func pairs(words []string) map[string]string {
	found := map[string]string{}
	for _, word := range words {
		if i := strings.IndexByte(word, '='); i > 0 {
			found[word[:i]] = word[i+1:]
		}
	}
	return found
}

func integer(word string) int64 {
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		panic("not a number: " + word)
	}
	return n
}

func (h *history) add(words []string, open map[string]*op) {
	switch words[0] {
	case "kind":
		h.kinds = append(h.kinds, words[1])
	case "call":
		id := words[1]
		o := &op{id: id, process: id[:strings.IndexByte(id, '.')], call: integer(words[2]), name: words[3],
			kind: words[4], owner: words[5], verb: words[6], args: pairs(words[7:]), ret: forever}
		open[id] = o
		h.ops = append(h.ops, o)
	case "ret":
		o := open[words[1]]
		o.ret, o.code, o.outs = integer(words[2]), words[3], pairs(words[4:])
	case "sure":
		h.sure[words[1]] = integer(words[2])
	case "wipe":
		h.wipes = append(h.wipes, span{integer(words[1]), integer(words[2])})
	case "change":
		h.changes = append(h.changes, change{span{integer(words[1]), integer(words[2])}, integer(words[3])})
	case "kill":
		h.kills[words[1]] = integer(words[2])
	case "cut":
		h.cuts = append(h.cuts, integer(words[1]))
	case "pause", "fault": // What a pause does, any delay could do: it is for the reader.
	default:
		panic("what is " + words[0] + "?")
	}
}

func (h *history) read(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	open := map[string]*op{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		h.add(strings.Fields(lines.Text()), open)
	}
	return lines.Err()
}

// readHistory reads the logs of a run.
func readHistory(dir string) (*history, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("no logs in %s", dir)
	}
	h := &history{sure: map[string]int64{}, kills: map[string]int64{}}
	for _, path := range paths {
		if err := h.read(path); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// parts are the operations on each name, in the order of their calls: a history is right if each
// of them is.
func (h *history) parts() [][]*op {
	byName := map[string][]*op{}
	for _, o := range h.ops {
		byName[o.name] = append(byName[o.name], o)
	}
	var parts [][]*op
	for _, ops := range byName {
		sort.SliceStable(ops, func(i, j int) bool { return ops[i].call < ops[j].call })
		parts = append(parts, ops)
	}
	sort.Slice(parts, func(i, j int) bool { return parts[i][0].name < parts[j][0].name })
	return parts
}
