package pandastack

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
)

// A run is started with the model's key in a header, and its events go on after
// a connection that broke, from where it broke.
func TestAgentRun(t *testing.T) {
	streams := 0
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + r.URL.Path {
		case "POST /v1/agents":
			var req api.AgentRequest
			if err := json.NewDecoder(r.Body).Decode(&req); err != nil || req.Task != "add" || string(req.Files[0].Content) != "1,2" {
				t.Errorf("%+v, %v", req, err)
			}
			if r.Header.Get("X-Model-Key") != "sk" {
				t.Errorf("headers %v", r.Header)
			}
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, `{"id":"ag-1","status":"running"}`)
		case "GET /v1/agents/ag-1/events":
			streams++
			if streams == 1 {
				fmt.Fprint(w, "id: 1\nevent: started\ndata: {\"seq\":1,\"type\":\"started\"}\n\nevent: delta\ndata: {\"type\":\"delta\",\"text\":\"I\"}\n\n")
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}
			if r.URL.Query().Get("after") != "1" {
				t.Errorf("taken up again after %q", r.URL.Query().Get("after"))
			}
			fmt.Fprint(w, "id: 2\nevent: ended\ndata: {\"seq\":2,\"type\":\"ended\",\"run\":{\"id\":\"ag-1\",\"reason\":\"answer\",\"answer\":\"42\"}}\n\n")
		case "GET /v1/agents/ag-1/figures/1-1-1.png":
			fmt.Fprint(w, "PNG")
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"error":"there is none","code":"not_found"}`)
		}
	})
	run, err := c.StartAgent(t.Context(), AgentOptions{ModelKey: "sk", AgentRequest: api.AgentRequest{
		Task: "add", Files: []api.AgentFile{{Path: "a.csv", Content: []byte("1,2")}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var heard []string
	for e, err := range run.Events(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		heard = append(heard, e.Type)
	}
	if strings.Join(heard, " ") != "started delta ended" || run.Info.Answer == nil || *run.Info.Answer != "42" {
		t.Errorf("heard %v, %+v", heard, run.Info)
	}
	if data, err := run.Figure(t.Context(), "1-1-1.png"); err != nil || string(data) != "PNG" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := c.GetAgent(t.Context(), "ag-2"); !errors.Is(err, ErrNotFound) {
		t.Errorf("no run: %v", err)
	}
}
